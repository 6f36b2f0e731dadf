package core

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

// InjectClock makes a Gate on Redis decide by a clock of the test, in microseconds.
func (g *Gate) InjectClock(now func() int64) {
	g.InjectServerClock(now)
	if g.cache != nil {
		g.cache.clock = func() time.Duration { return time.Duration(now()) * time.Microsecond }
	}
}

// AwaitTasks returns when what runs in the background has ended, such as claims of thresholds and
// the calls of ledgers that decisions no longer wait for.
func (g *Gate) AwaitTasks() { _ = g.tasks.Wait(context.Background()) }

// InjectServerClock is InjectClock, except that the denial cache keeps its own clock.
func (g *Gate) InjectServerClock(now func() int64) {
	g.restore(func(cfg *redisstore.Config) { cfg.Clock, cfg.Script = now, redistest.Script })
}

// restore gives a Gate on Redis another store, whose configuration change has changed.
func (g *Gate) restore(change func(*redisstore.Config)) {
	cfg := g.store.(*redisstore.Store).Config
	change(&cfg)
	s := redisstore.New(cfg)
	g.store, g.lent.Keeper.Server = s, s.Servers.Server
	g.lent.Leases, g.lent.Filters = redisstore.NewLeases(s), redisstore.NewFilters(s)
}

// NumberHolds makes the Gate count the ids of its holds, so that two Gates have the same.
func (g *Gate) NumberHolds() {
	var n atomic.Int64
	g.holdID = func() string { return fmt.Sprint("h", n.Add(1)) }
}

// KnownDenials returns how many denials the cache holds.
func (g *Gate) KnownDenials() (n int) {
	for i := range g.cache.sets {
		for j := range g.cache.sets[i] {
			if g.cache.sets[i][j].Load() != nil {
				n++
			}
		}
	}
	return n
}

// SplitByOutermost makes a Gate decide as on a cluster.
func (g *Gate) SplitByOutermost() {
	g.cluster = true
	if g.source == SourceRedis {
		g.restore(func(cfg *redisstore.Config) { cfg.Cluster = true })
	}
}

// Values returns the states of a Gate in memory in Redis's format, by the names of their keys
// without the prefix: also their holds in lines of text and time, and their adjustments in lines that
// end with the time until which each counts.
func (g *Gate) Values() map[string]string {
	values := make(map[string]string)
	g.local.Each(func(key, suffix string, kept *algorithm.Kept) {
		if kept.State != nil {
			values[key+suffix] = kept.State.Value()
		}
		if !kept.Adjustments.Empty() {
			values[key+suffix+request.AdjustmentsSuffix] = adjustmentsValue(kept.Adjustments)
		}
		if !kept.Holds.Empty() {
			values[key+suffix+request.HoldsSuffix] = holdsValue(kept.Holds)
		}
	})
	return values
}

func adjustmentsValue(a *algorithm.Adjustments) string {
	lines := []string{fmt.Sprint("seeded ", a.Seeded)}
	for id, ends := range a.IDs {
		lines = append(lines, fmt.Sprintf("id:%s %d", id, ends))
	}
	for ends, units := range a.Raises {
		lines = append(lines, fmt.Sprintf("raise %d %d", units, ends))
	}
	return strings.Join(lines, "\n")
}

// holdsValue returns the members of the sorted set in Redis, in order, each with its score.
func holdsValue(h *algorithm.Holds) string {
	var text strings.Builder
	for _, total := range slices.SortedFunc(maps.Keys(h.Totals), func(a, b int64) int {
		return cmp.Or(cmp.Compare(h.Totals[b], h.Totals[a]), cmp.Compare(a, b))
	}) {
		name := "held"
		if total != 0 {
			name += fmt.Sprint(" ", total)
		}
		fmt.Fprintln(&text, name, -h.Totals[total])
	}
	for _, one := range h.All {
		fmt.Fprintln(&text, one.Text(), one.Until)
	}
	return text.String()
}

// Collide gives the keys of these policies the same hashes in memory.
func Collide(policies ...*Policy) {
	for _, p := range policies {
		p.own.kind.Hash = 0
	}
}

// Suffix returns the end of the names of a policy's keys.
func (p *Policy) Suffix(own Algorithm) string {
	l, err := p.limitOf(own)
	if err != nil {
		return err.Error()
	}
	return l.kind.Suffix
}

// Abandon ends the renewals of a reservation, as the death of its process does.
func (r *Reservation) Abandon() {
	if r == nil {
		return
	}
	r.hold.mu.Lock()
	defer r.hold.mu.Unlock()
	if r.hold.timer != nil {
		r.hold.timer.Stop()
	}
}

// Renew renews a reservation once. It returns a bit for each charge whose hold has ended.
func (r *Reservation) Renew() (gone uint32, err error) {
	err = r.renew()
	return r.hold.lost(), err
}

// Charges returns how many charges a reservation has.
func (r *Reservation) Charges() int { return len(r.place) }

// ScriptRequest is a request that a test puts in a script.
type ScriptRequest struct {
	inquiry *inquiry // nil for a refund
	charges []Charge
	request request.Request
}

// operationOf returns the operation of a name.
func operationOf(name string) (op algorithm.Operation) {
	for op.String() != name {
		op++
	}
	return op
}

// NewRequest builds a request. It returns nil if no charge keeps state.
func (g *Gate) NewRequest(op string, bound int64, charges ...Charge) (*ScriptRequest, error) {
	p := newInquiry(operationOf(op), bound, moment{})
	if err := p.lay(charges); err != nil || len(p.wire) == 0 {
		return nil, err
	}
	return &ScriptRequest{inquiry: p, charges: charges, request: request.Request{Terms: algorithm.Terms{Op: p.op, Bound: bound, Receipts: true}, Charges: p.whole[0].Charges}}, nil
}

// WithoutReceipts marks the request's charges as never refunded.
func (r *ScriptRequest) WithoutReceipts() { r.request.Receipts = false }

// Refund returns a request that refunds what r spent, or up to units of each charge, as Settle
// does. It returns nil if nothing was spent.
func (r *ScriptRequest) Refund(whole bool, units int64) *ScriptRequest {
	give := request.Request{Terms: algorithm.Terms{Op: algorithm.Give}}
	for i := range r.inquiry.wire {
		c := r.inquiry.wire[i]
		n := c.Spent
		if !whole {
			n = min(n, units)
		}
		if n == 0 || !c.Fits {
			continue
		}
		spent := c.Limit
		c.Limit = c.from.current()
		c.Cost = algorithm.Back(spent, c.Limit, n)
		give.Charges = append(give.Charges, &c.Charge)
	}
	if len(give.Charges) == 0 {
		return nil
	}
	return &ScriptRequest{request: give}
}

// Reply returns the verdict with the reply of each charge, and the Decision they make. Without
// receipts, a reply only says whether something was charged.
func (r *ScriptRequest) Reply(receipts bool) (string, Decision) {
	var d Decision
	if r.inquiry == nil {
		return fmt.Sprint(r.request.Verdict), d
	}
	var replies [][]int64
	for _, c := range r.request.Charges {
		reply := slices.Clone(c.Reply)
		if last := len(reply) - 1; !receipts && reply[last] != 0 {
			reply[last] = 1
		}
		replies = append(replies, reply)
	}
	r.inquiry.admitted = r.request.Admitted()
	r.inquiry.results(&d, r.charges, SourceNone)
	return fmt.Sprint(r.request.Verdict, replies), d
}

// DecideInOne decides the requests of one caller in one script.
func (g *Gate) DecideInOne(ctx context.Context, asked []*ScriptRequest) error {
	requests := make([]request.Request, len(asked))
	for i, r := range asked {
		requests[i] = r.request
	}
	err := g.store.Decide(ctx, requests)
	for i, r := range asked {
		r.request = requests[i]
	}
	return err
}

// DecideShared decides each request for a different caller, without receipts, and those of one form in one
// script. It returns their order, and how many callers got the answer of an identical request.
func (g *Gate) DecideShared(ctx context.Context, asked []*ScriptRequest) (order []int, merged int, err error) {
	s := g.store.(*redisstore.Store)
	requests := make([]request.Request, len(asked))
	decisions := make([]*redisstore.Decision, len(asked))
	left := make([]int, len(asked))
	for i, r := range asked {
		requests[i], left[i] = r.request, i
		decisions[i] = s.NewDecision(requests[i : i+1])
	}
	for len(left) > 0 {
		var together []int
		first := decisions[left[0]]
		left = slices.DeleteFunc(left, func(i int) bool {
			joins := first == decisions[i] || first.Joins(decisions[i])
			if joins {
				together = append(together, i)
			}
			return joins
		})
		for decided := false; !decided; {
			b := first.Batch()
			for _, i := range together {
				b.Add(decisions[i])
			}
			n := orderShared(requests, together)
			reply, err := s.Servers.Send(ctx, s.Client, b)
			if err == nil {
				err = b.Deliver(reply)
			}
			for _, i := range together {
				if err == nil {
					decided, err = decisions[i].Decode()
				}
			}
			if err != nil {
				return nil, 0, err
			}
			if decided {
				merged += n
			}
		}
		order = append(order, together...)
	}
	for i, r := range asked {
		r.request = requests[i]
	}
	return order, merged, nil
}

// orderShared brings requests of different callers, which are given by their indexes, into the order in
// which one script decides them, and returns how many of them are merged. A request is decided with the
// last one before it whose first charge is on the same state, if the two merge.
func orderShared(requests []request.Request, together []int) (merged int) {
	with := make(map[int]int)
	for at, i := range together {
		r := &requests[i]
		with[i] = at
		for before, j := range slices.Backward(together[:at]) {
			o := &requests[j]
			if with[j] == before && o.Charges[0].SameState(r.Charges[0]) {
				if r.Merges() && o.Merges() && r.Equal(o) {
					with[i] = before
					merged++
				}
				break
			}
		}
	}
	slices.SortStableFunc(together, func(i, j int) int { return with[i] - with[j] })
	return merged
}

// Is reports whether the request is for this operation.
func (r *ScriptRequest) Is(op string) bool { return r.request.Op.String() == op }
