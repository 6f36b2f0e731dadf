package lease

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// Two tenants of which one offers a hundred times the load of the other share the slots by their
// shares, whatever the number of slots and however long each holds one, and leave no slot unused.
func TestSlotTimeFollowsShares(t *testing.T) {
	t.Parallel()
	all := []int64{1, 4}
	if os.Getenv("HEADGATE_TEST_LONG") != "" {
		all = []int64{1, 2, 4, 10}
	}
	for _, slots := range all {
		for _, share := range [][2]int64{{1, 1}, {1, 3}, {3, 1}} {
			for _, hold := range [][2]int64{{1, 1}, {10, 1}, {1, 10}} {
				for _, random := range []bool{false, true} {
					s := &simulation{slots: slots, random: random, tenants: []*tenant{
						{name: "small", share: share[0], hold: hold[0] * second, workers: int(2 * slots)},
						{name: "big", share: share[1], hold: hold[1] * second, workers: int(200 * slots)},
					}}
					if jain, utilization := s.run(1000 * second); jain < 0.95 || utilization < 0.99 {
						t.Errorf("%d slots, shares %v, holds of %v s, random %v: Jain's index %.4f, utilization %.4f, "+
							"want 0.95 and 0.99 at least", slots, share, hold, random, jain, utilization)
					}
				}
			}
		}
	}
}

// ask is a request with one slot at each node, outermost first, and the share and floor of the
// innermost.
func ask(id string, slots, share, floor int64, nodes ...string) Request {
	q := Request{
		ID: id, Channel: "c", Lease: 1e12, Patience: 1e12, Waiters: 1e6, Metadata: "-",
	}
	for _, node := range nodes {
		q.Levels = append(q.Levels, Level{Node: node, Limit: slots, Weight: 1})
	}
	last := &q.Levels[len(nodes)-1]
	last.Share, last.Floor = share, floor
	return q
}

func (p *pair) request(q Request) Grant {
	p.t.Helper()
	g := p.model.Acquire(p.now, q)
	p.compare(p.run(p.t, p.now, acquireArgs(q)...), g.reply())
	return g
}

// next releases an id after a hold and returns the id that got its slot, with a long lease.
func (p *pair) next(id string, hold int64) string {
	p.t.Helper()
	p.now += hold
	p.published = nil
	p.release(id)
	if len(p.published) != 1 {
		p.t.Fatalf("the release of %s published %q", id, p.published)
	}
	m, _ := ParseMessage(p.published[0])
	p.each("renew", func(now int64, ids []string) []int64 { return p.model.Renew(now, 1_000_000, ids) }, m.ID)
	return m.ID
}

// The next releases go to a key below its floor, even if it has used more than its siblings.
func TestFloorIsMetByNextReleases(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		held := make([]string, 4)
		for i := range held {
			held[i] = fmt.Sprint("big", i)
			p.request(ask(held[i], 4, 1000, 0, "{a}", "{a}:big"))
		}
		for i := range 20 {
			p.request(ask(fmt.Sprint("big1", i), 4, 1000, 0, "{a}", "{a}:big"))
		}
		for i := range 10 {
			p.request(ask(fmt.Sprint("few", i), 4, 1, 2, "{a}", "{a}:few"))
			p.request(ask(fmt.Sprint("more", i), 4, 1, 0, "{a}", "{a}:more"))
		}
		for round := range 3 {
			var got []string
			for i := range held {
				held[i] = p.next(held[i], 900_000)
				got = append(got, held[i][:3])
			}
			if n := p.model.used["{a}:few"]; n != 2 {
				t.Fatalf("round %d: %v, and %d slots of a floor of 2", round, got, n)
			}
			if round == 0 && (got[0] != "few" || got[1] != "few") {
				t.Errorf("the first releases went to %v", got)
			}
		}
	})
}

// A key that comes from idle gets no credit for that time, and one that used idle slots no debt.
func TestIdleTimeIsNoCredit(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		holder := "busy0"
		for i := range 30 {
			p.request(ask(fmt.Sprint("busy", i), 1, 1, 0, "{a}", "{a}:busy"))
		}
		for range 10 {
			holder = p.next(holder, 900_000)
		}
		for i := range 30 {
			p.request(ask(fmt.Sprint("idle", i), 1, 1, 0, "{a}", "{a}:idle"))
		}
		got := make(map[string]int)
		for range 10 {
			holder = p.next(holder, 900_000)
			got[holder[:4]]++
		}
		if got["idle"] < 4 || got["idle"] > 6 {
			t.Errorf("of 10 slots: %v", got)
		}
	})
}

// A key with one caller, which holds ten times as long as the others, owes for that while it is
// idle.
func TestDebtOutlivesWaiters(t *testing.T) {
	s := &simulation{slots: 1, tenants: []*tenant{
		{name: "long", hold: 10 * second, workers: 1},
		{name: "short", hold: second, workers: 100},
	}}
	jain, utilization := s.run(3000 * second)
	t.Logf("Jain's index %.4f, utilization %.4f", jain, utilization)
	if jain < 0.95 || utilization < 0.99 || len(s.scope.account) > 2 {
		t.Errorf("want an index of 0.95 and a utilization of 0.99 at least; accounts %v", s.scope.account)
	}
}

// Waiters at the shared key itself and waiters below it take turns by their arrival.
func TestOwnWaitersTakeTurnsByArrival(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		p.request(ask("held", 1, 1, 0, "{a}"))
		for i := range 4 {
			p.now++
			p.request(ask(fmt.Sprint("own", i), 1, 1, 0, "{a}"))
			p.now++
			p.request(ask(fmt.Sprint("below", i), 1, 1, 0, "{a}", "{a}:u"))
		}
		holder := "held"
		for _, want := range []string{"own0", "below0", "own1", "below1", "own2", "below2", "own3", "below3"} {
			if holder = p.next(holder, 500_000); holder != want {
				t.Errorf("%s was next, want %s", holder, want)
			}
		}
	})
}

// Accounts are bounded by the keys that wait or hold, and end with the last waiter.
func TestAccountsAreBounded(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		const keys = 150
		holder, before := "w0", int64(0)
		for i := range keys {
			id := fmt.Sprint("w", i)
			p.request(ask(id, 1, 1, 0, "{a}", "{a}:"+id))
		}
		for waiting := keys - 2; waiting > 0; waiting-- {
			holder = p.next(holder, 500_000)
			n := p.client.HLen(t.Context(), p.keys[4]).Val()
			if n > max(before, int64(minDebts+4+2*(1+waiting))) {
				t.Fatalf("%d accounts and clocks, and %d keys wait", n, waiting)
			}
			before = n
		}
		if before < 30 || before > 130 {
			t.Errorf("%d accounts and clocks in the end", before)
		}
		holder = p.next(holder, 500_000)
		if n := p.client.Exists(t.Context(), p.keys[2:]...).Val(); n != 0 {
			t.Errorf("%d keys of the queue remain", n)
		}
		p.release(holder)
		if n := p.client.Exists(t.Context(), p.keys...).Val(); n != 1 { // the last token
			t.Errorf("%d keys remain", n)
		}
	})
}

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
