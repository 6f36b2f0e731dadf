package lease

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Two tenants of which one offers a hundred times the load of the other share the slots by their
// shares, whatever the number of slots and however long each holds one, and leave no slot unused.
func TestSlotTimeFollowsShares(t *testing.T) {
	t.Parallel()
	for _, slots := range []int64{1, 2, 4, 10} {
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

// waits queues a caller with one slot at each node, and fails the test unless it waits at that place.
func (p *pair) waits(position int64, background bool, id string, floor int64, nodes ...string) {
	p.t.Helper()
	p.now++
	q := ask(id, 4, 1, floor, nodes...)
	q.Background = background
	if g := p.request(q); g.Status != Waiting || g.Position != position {
		p.t.Fatalf("%s: %+v", id, g)
	}
}

// order releases the holders one after the other, and returns who gets each slot.
func (p *pair) order(held ...string) (got []string) {
	p.t.Helper()
	for p.model.patience.len() > 0 {
		next := p.next(held[0], 500_000)
		got, held = append(got, next), append(held[1:], next)
	}
	return got
}

// Whoever waits in the background comes behind all others at every node, in the order of arrival there,
// and with the others as soon as it acquires again as one of them.
func TestForegroundComesFirst(t *testing.T) {
	t.Parallel()
	const back, front = true, false
	for _, nodes := range [][]string{{"{a}"}, {"{a}", "{a}:u"}} {
		t.Run(fmt.Sprint(len(nodes), " caps"), func(t *testing.T) {
			eachScope(t, func(t *testing.T, p *pair) {
				for i := range 4 {
					p.request(ask(fmt.Sprint("held", i), 4, 1, 0, nodes...))
				}
				p.waits(0, back, "b0", 0, nodes...)
				p.waits(1, back, "b1", 0, nodes...)
				p.waits(0, front, "f0", 0, nodes...)
				p.waits(3, back, "b2", 0, nodes...)
				p.waits(1, front, "f1", 0, nodes...)
				p.waits(4, back, "b2", 0, nodes...)  // again
				p.waits(0, front, "b1", 0, nodes...) // which has waited for half of its time
				p.waits(2, back, "f1", 0, nodes...)  // is in the foreground for good
				_, waiting := p.model.List(p.now)
				for _, e := range waiting[4:] {
					if r, err := Parse(e.Record); err != nil || r.Queued > p.now {
						t.Errorf("%s is queued at %d, now is %d; %v", e.ID, r.Queued, p.now, err)
					}
				}
				got := p.order("held0", "held1", "held2", "held3")
				if want := []string{"b1", "f0", "f1", "b0", "b2"}; !slices.Equal(got, want) {
					t.Errorf("%v, want %v", got, want)
				}
			})
		})
	}
	t.Run("keys below one cap", func(t *testing.T) {
		eachScope(t, func(t *testing.T, p *pair) {
			for i := range 4 {
				p.request(ask(fmt.Sprint("held", i), 4, 1, 0, "{a}", "{a}:held"))
			}
			p.waits(0, back, "back", 0, "{a}", "{a}:u")
			p.waits(0, back, "own", 0, "{a}")
			p.waits(0, back, "floor", 1, "{a}", "{a}:w")
			p.waits(0, front, "front", 0, "{a}", "{a}:x")
			p.waits(0, front, "both", 0, "{a}", "{a}:u")
			p.waits(0, front, "first", 1, "{a}", "{a}:y")
			got := p.order("held0", "held1", "held2", "held3")
			slices.Sort(got[1:3]) // by their accounts
			slices.Sort(got[3:])
			want := []string{"first", "both", "front", "back", "floor", "own"}
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	})
}

// A queue that is full of background callers has room for others, and not the other way round.
func TestQueueIsFullByClass(t *testing.T) {
	t.Parallel()
	eachScope(t, func(t *testing.T, p *pair) {
		p.acquire("held", 0, Level{Node: "{a}", Limit: 1, Weight: 1})
		for i, tt := range []struct {
			background bool
			want       Status
		}{
			{true, Waiting}, {true, Waiting}, {true, QueueFull}, {false, Waiting}, {true, QueueFull},
			{false, Waiting}, {false, QueueFull},
		} {
			q := ask(fmt.Sprint("id", i), 1, 1, 0, "{a}")
			q.Waiters, q.Background = 2, tt.background
			if g := p.request(q); g.Status != tt.want {
				t.Errorf("%d: %+v, want %v", i, g, tt.want)
			}
		}
	})
}

// Shares hold among the keys that wait in the background, beside one that does not and that is served
// first.
func TestBackgroundKeepsShares(t *testing.T) {
	front := &tenant{name: "front", share: 1, hold: second, workers: 2}
	small := &tenant{name: "small", share: 1, hold: second, workers: 20, background: true}
	big := &tenant{name: "big", share: 3, hold: second / 2, workers: 20, background: true}
	s := &simulation{slots: 6, tenants: []*tenant{front, small, big}}
	_, utilization := s.run(1000 * second)
	share := func(c *tenant) float64 { return float64(c.served) / (900 * second) }
	t.Logf("slots: front %.2f, small %.2f, big %.2f", share(front), share(small), share(big))
	if share(front) < 1.5 || utilization < 0.99 {
		t.Errorf("the foreground has %.2f slots, utilization %.2f", share(front), utilization)
	}
	if ratio := share(big) / share(small); ratio < 2.8 || ratio > 3.2 {
		t.Errorf("the background has shares of 1 : %.2f, want 3", ratio)
	}
}
