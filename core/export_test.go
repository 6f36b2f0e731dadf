package core

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/request"
)

// InjectClock makes a Gate on Redis decide on a clock of the test, in microseconds.
func (g *Gate) InjectClock(now func() int64) {
	g.InjectServerClock(now)
	if g.cache != nil {
		g.cache.clock = func() time.Duration { return time.Duration(now()) * time.Microsecond }
	}
}

// InjectServerClock is InjectClock, except that the Gate's cache of denials keeps its clock.
func (g *Gate) InjectServerClock(now func() int64) {
	g.store.(*guard).store.InjectClock(now)
}

// KnownDenials is how many denials the cache holds.
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
	switch s := g.store.(type) {
	case *guard:
		s.store.Cluster = true
	default:
		g.store = &splitter{s, redisstore.New(redisstore.Config{Cluster: true})}
	}
}

// splitter splits requests as another store does.
type splitter struct {
	request.Store
	as request.Store
}

func (s *splitter) Split(charges []*request.Charge) [][]*request.Charge { return s.as.Split(charges) }

// CountGiven counts the refunds that changed something.
func (g *Gate) CountGiven() *atomic.Int64 {
	s := &givenCounter{Store: g.store}
	g.store = s
	return &s.given
}

type givenCounter struct {
	request.Store
	given atomic.Int64
}

func (s *givenCounter) Decide(ctx context.Context, requests []request.Request) error {
	err := s.Store.Decide(ctx, requests)
	for _, r := range requests {
		if err == nil && r.Op == algorithm.Give && r.Verdict > 0 {
			s.given.Add(1)
		}
	}
	return err
}

// Values are the states of a Gate in memory as Redis would hold them, by the names of their keys
// after the prefix.
func (g *Gate) Values() map[string]string { return g.local.Values() }

// Collide gives the keys of policies the same hashes in memory.
func Collide(policies ...*Policy) {
	for _, p := range policies {
		p.own.hash = 0
	}
}

// Tag ends the names of a policy's keys.
func (p *Policy) Tag(ctx context.Context, key Key) string {
	l, err := p.limitOf(ctx, key, nil)
	if err != nil {
		return err.Error()
	}
	return l.suffix
}

// Charges is how many a reservation has.
func (r *Reservation) Charges() int { return len(r.place) }

// Until is when this process ceases to believe in a lease that is not renewed.
func (l *Lease) Until() time.Time { return l.holding.Until() }

// Overdue lets the time of a lease be over.
func (l *Lease) Overdue() { l.holding.Expire() }

// Enqueue asks for a slot once and does not wait: whoever is not granted it stays in the queue
// until the lease would be over.
func (s *Semaphore) Enqueue(ctx context.Context, ask SlotRequest) (id string, err error) {
	q, err := s.request(ask, 1_000_000)
	if err != nil {
		return "", err
	}
	_, err = s.gate.leases.Acquire(ctx, s.scope(ask.Levels[0].Key), q)
	return q.ID, err
}

// Leave gives up what Enqueue asked for.
func (s *Semaphore) Leave(ctx context.Context, key Key, id string) error {
	_, err := s.gate.leases.Release(ctx, s.scope(key), []string{id})
	return err
}

// Drop makes a gate's store forget a lease, and tells nobody.
func Drop(g *Gate, s *Semaphore, key Key, id string) (int, error) {
	was, err := g.leases.Release(context.Background(), s.scope(key), []string{id})
	return len(was), err
}

// Together peeks at a charge under the limits of one context and decides on it under those of
// another, in one round trip. It says which were denied.
func (g *Gate) Together(peek, decide context.Context, c Charge) (denied [2]bool, err error) {
	var requests []request.Request
	for i, op := range []algorithm.Operation{algorithm.Peek, algorithm.Decide} {
		p := new(plan)
		if err := p.lay([]context.Context{peek, decide}[i], op, []Charge{c}); err != nil {
			return denied, err
		}
		requests = append(requests, request.Request{Op: op, Charges: p.charges})
	}
	err = g.store.Decide(decide, requests)
	return [2]bool{requests[0].Verdict != 0, requests[1].Verdict != 0}, err
}

// Asked is a request that a test sends among others.
type Asked struct {
	plan    *plan // nil of a give-back
	request request.Request
}

// Ask lays out a request. It is nil where no charge keeps state.
func (g *Gate) Ask(ctx context.Context, op string, bound int64, charges ...Charge) (*Asked, error) {
	p := new(plan)
	if err := p.lay(ctx, algorithm.Operation(op), charges); err != nil || len(p.wire) == 0 {
		return nil, err
	}
	p.bound = bound
	return &Asked{plan: p, request: request.Request{Op: p.op, Bound: bound, Charges: p.charges, Receipts: true}}, nil
}

// WithoutReceipts asks for charges that are not given back.
func (a *Asked) WithoutReceipts() { a.request.Receipts = false }

// Back asks for what the request spent, or for up to some units of each of its charges, as Settle
// does. It is nil where nothing was spent.
func (a *Asked) Back(ctx context.Context, whole bool, units int64) *Asked {
	give := request.Request{Op: algorithm.Give}
	for i := range a.plan.wire {
		c := a.plan.wire[i]
		n := c.Spent
		if !whole {
			n = min(n, units)
		}
		if n == 0 || !c.Fits {
			continue
		}
		spent := c.Limit
		if l, err := c.policy.limitOf(ctx, c.key, c.own); err == nil && c.from.suffix == l.suffix {
			c.Limit = l.current()
		}
		c.Cost = algorithm.Back(spent, c.Limit, n)
		give.Charges = append(give.Charges, &c.Charge)
	}
	if len(give.Charges) == 0 {
		return nil
	}
	return &Asked{request: give}
}

// Reply is the verdict and each charge's reply, and the decision that they make. Without receipts,
// they only tell that something was charged.
func (a *Asked) Reply(receipts bool) (string, Decision) {
	var d Decision
	if a.plan == nil {
		return fmt.Sprint(a.request.Verdict), d
	}
	var replies [][]int64
	for _, c := range a.request.Charges {
		reply := slices.Clone(c.Reply)
		if last := len(reply) - 1; !receipts && reply[last] != 0 {
			reply[last] = 1
		}
		replies = append(replies, reply)
	}
	d.Allowed = a.request.Admitted()
	a.plan.results(&d)
	return fmt.Sprint(a.request.Verdict, replies), d
}

// DecideInOne decides requests of one caller in one script.
func (g *Gate) DecideInOne(ctx context.Context, asked []*Asked) error {
	requests := make([]request.Request, len(asked))
	for i, a := range asked {
		requests[i] = a.request
	}
	err := g.store.Decide(ctx, requests)
	for i, a := range asked {
		a.request = requests[i]
	}
	return err
}

// DecideShared decides requests of as many callers in one script, none of whom keeps receipts. It
// returns in which order, and how many had another's answer told to them.
func (g *Gate) DecideShared(ctx context.Context, asked []*Asked) (order []int, merged int, err error) {
	requests := make([]request.Request, len(asked))
	for i, a := range asked {
		requests[i] = a.request
	}
	order, merged, err = g.store.(*guard).store.DecideShared(ctx, requests)
	for i, a := range asked {
		a.request = requests[i]
	}
	return order, merged, err
}

// Waiting is how many calls wait for the next round trip.
func (g *Gate) Waiting() int { return g.store.(*guard).store.Waiting() }

// Is says whether a request asks for an operation.
func (a *Asked) Is(op string) bool { return a.request.Op == algorithm.Operation(op) }
