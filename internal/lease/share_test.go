package lease

import (
	"fmt"
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
