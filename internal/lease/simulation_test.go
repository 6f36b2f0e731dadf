package lease

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
)

const second = 1_000_000

// tenant is a child of the node that a simulation shares. Each of its workers acquires a slot,
// holds it, releases it and acquires the next.
type tenant struct {
	name         string
	share, floor int64
	workers      int
	hold         int64 // mean, in microseconds
	background   bool

	served, held, at int64 // slot time until at, slots held since at
}

func (c *tenant) change(now, sign int64) {
	c.served, c.at = c.served+c.held*(now-c.at), now
	c.held += sign
}

// simulation runs tenants on a scope with an injected clock.
type simulation struct {
	slots   int64
	tenants []*tenant
	random  bool // holds are exponential; otherwise all are equal to the mean

	scope   Scope
	granted []string // ids in the messages of the last operation
}

func (s *simulation) tell(_, text string) {
	if m, ok := ParseMessage(text); ok && m.Token > 0 {
		s.granted = append(s.granted, m.ID)
	}
}

type event struct {
	at     int64
	n      int // the order of events at one time
	worker string
	ends   bool // a hold; otherwise it acquires
}

type events []event

func (e events) Len() int      { return len(e) }
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].n < e[j].n
}

// run returns Jain's index of slot time per share, and the part of the slots that was in use. It
// leaves out the first tenth.
func (s *simulation) run(lasts int64) (jain, utilization float64) {
	const start = int64(1_763_700_000_000_000)
	s.scope.Tell = s.tell
	rng := rand.New(rand.NewPCG(1, 2))
	var queue events
	n := 0
	push := func(at int64, worker string, ends bool) {
		n++
		heap.Push(&queue, event{at, n, worker, ends})
	}
	tenants, runs := make(map[string]*tenant), make(map[string]int)
	for _, c := range s.tenants {
		c.at = start
		for i := range c.workers {
			w := fmt.Sprint(c.name, "-", i)
			tenants[w] = c
			push(start+rng.Int64N(1000), w, false)
		}
	}
	begin := func(now int64, worker string) {
		c := tenants[worker]
		c.change(now, 1)
		hold := c.hold
		if s.random {
			hold = 1 + int64(rng.ExpFloat64()*float64(hold))
		}
		push(now+hold, worker, true)
	}
	for warm := false; ; {
		e := heap.Pop(&queue).(event)
		if !warm && e.at > start+lasts/10 {
			warm = true
			for _, c := range s.tenants {
				c.change(start+lasts/10, 0)
				c.served = 0
			}
		}
		if e.at > start+lasts {
			break
		}
		c, id := tenants[e.worker], fmt.Sprint(e.worker, "-", runs[e.worker])
		if e.ends {
			c.change(e.at, -1)
			s.scope.Release(e.at, []string{id})
			runs[e.worker]++
			push(e.at+1, e.worker, false)
		} else {
			own := Level{Node: "{a}:" + c.name, Limit: s.slots, Weight: 1, Share: c.share, Floor: c.floor}
			grant := s.scope.Acquire(e.at, Request{
				ID: id, Channel: "c", Lease: 1e12, Patience: 1e12, Waiters: 1e9, Metadata: "-", Background: c.background,
				Levels: []Level{{Node: "{a}", Limit: s.slots, Weight: 1}, own},
			})
			if grant.Status == Held {
				begin(e.at, e.worker)
			}
		}
		granted := s.granted
		s.granted = nil
		for _, id := range granted {
			s.scope.Renew(e.at, 1e12, []string{id})
			begin(e.at, id[:strings.LastIndexByte(id, '-')])
		}
	}
	var sum, squares, total float64
	for _, c := range s.tenants {
		c.change(start+lasts, 0)
		x := float64(c.served) / float64(max(1, c.share))
		sum, squares, total = sum+x, squares+x*x, total+float64(c.served)
	}
	measured := float64(lasts - lasts/10)
	return sum * sum / squares / float64(len(s.tenants)), total / float64(s.slots) / measured
}
