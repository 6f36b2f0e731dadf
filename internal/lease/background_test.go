package lease

import (
	"fmt"
	"slices"
	"testing"
)

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
