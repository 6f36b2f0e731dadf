package core

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/algorithm"
)

// InjectClock makes a Gate on Redis decide on a clock of the test, in microseconds.
func (g *Gate) InjectClock(now func() int64) {
	s := g.store.(*redisStore)
	s.now = now
	s.script, s.admit = newScript(headgate.DecideScriptInjected()), newScript(headgate.AdmitScriptInjected())
	g.leases.store.(*redisLeases).script = newScript(headgate.LeaseScriptInjected())
	own := func() time.Duration { return time.Duration(now()) * time.Microsecond }
	if g.cache != nil {
		g.cache.clock = own
	}
}

// InjectServerClock makes a Gate on Redis decide on a clock of the test, and leaves what it goes by itself.
func (g *Gate) InjectServerClock(now func() int64) {
	cache := g.cache
	g.cache = nil
	g.InjectClock(now)
	g.cache = cache
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
	g.perSlot = true
	if s, ok := g.store.(*redisStore); ok {
		s.perSlot = true
	}
}

// CountGiven counts the give-backs that changed something.
func (g *Gate) CountGiven() *atomic.Int64 {
	s := &givenCounter{store: g.store}
	g.store = s
	return &s.given
}

type givenCounter struct {
	store
	given atomic.Int64
}

func (s *givenCounter) decide(ctx context.Context, requests []request) error {
	err := s.store.decide(ctx, requests)
	for _, r := range requests {
		if err == nil && r.op == algorithmGive && r.verdict > 0 {
			s.given.Add(1)
		}
	}
	return err
}

// Values are the states of a Gate in memory as Redis would hold them, by the names of their keys after the prefix.
func (g *Gate) Values() map[string]string {
	kept := g.store
	if c, ok := kept.(*givenCounter); ok {
		kept = c.store
	}
	values := make(map[string]string)
	for i := range kept.(*memoryStore).shards {
		s := &kept.(*memoryStore).shards[i]
		s.Lock()
		for _, at := range s.keys {
			for at := &at; at != nil; at = at.next {
				values[at.path+at.suffix] = at.state.Value()
			}
		}
		s.Unlock()
	}
	return values
}

// Collide gives the keys of policies the same numbers in memory.
func Collide(policies ...*Policy) {
	for _, p := range policies {
		p.own.number = 0
	}
}

// Tag ends the names of a policy's keys.
func (p *Policy) Tag(ctx context.Context, key Key) string {
	l, err := p.limitOf(ctx, key)
	if err != nil {
		return err.Error()
	}
	return l.suffix
}

// Charges is how many a reservation has.
func (r *Reservation) Charges() int { return len(r.place) }

// Until is when this process ceases to believe in a lease that is not renewed.
func (l *Lease) Until() time.Time {
	l.holding.owner.mu.Lock()
	defer l.holding.owner.mu.Unlock()
	return l.holding.until
}

// Overdue lets the time of a lease be over.
func (l *Lease) Overdue() {
	l.holding.owner.mu.Lock()
	l.holding.until = time.Now()
	l.holding.owner.mu.Unlock()
	l.holding.owner.poke()
}

// Enqueue asks for a slot once and does not wait: whoever is not granted it stays in the queue until the lease would be
// over.
func (s *Semaphore) Enqueue(ctx context.Context, ask Ask) (id string, err error) {
	q, err := s.request(ask, 1_000_000)
	if err != nil {
		return "", err
	}
	_, err = s.gate.leases.store.acquire(ctx, s.scope(ask.Levels[0].Key), q)
	return q.ID, err
}

// Leave gives up what Enqueue asked for.
func (s *Semaphore) Leave(ctx context.Context, key Key, id string) error {
	_, err := s.gate.leases.store.release(ctx, s.scope(key), []string{id})
	return err
}

// Drop makes a gate's store forget a lease, and tells nobody.
func Drop(g *Gate, s *Semaphore, key Key, id string) (int, error) {
	was, err := g.leases.store.release(context.Background(), s.scope(key), []string{id})
	return len(was), err
}

// Together peeks at a charge under the limits of one context and decides on it under those of another, in one round trip. It
// says which were denied.
func (g *Gate) Together(peek, decide context.Context, c Charge) (denied [2]bool, err error) {
	var requests []request
	for i, op := range []algorithm.Operation{algorithmPeek, algorithmDecide} {
		p := new(plan)
		if err := p.lay([]context.Context{peek, decide}[i], op, []Charge{c}); err != nil {
			return denied, err
		}
		requests = append(requests, request{op: op, charges: p.wire})
	}
	err = g.store.decide(decide, requests)
	return [2]bool{requests[0].verdict != 0, requests[1].verdict != 0}, err
}

// Asked is a request that a test sends among others.
type Asked struct {
	plan    *plan // nil of a give-back
	request request
}

// Ask lays out a request. It is nil where no charge keeps state.
func (g *Gate) Ask(ctx context.Context, op string, bound int64, charges ...Charge) (*Asked, error) {
	p := new(plan)
	if err := p.lay(ctx, algorithm.Operation(op), charges); err != nil || len(p.wire) == 0 {
		return nil, err
	}
	p.bound = bound
	return &Asked{p, request{op: p.op, bound: bound, charges: p.wire, receipts: true}}, nil
}

// WithoutReceipts asks for charges that are not given back.
func (a *Asked) WithoutReceipts() { a.request.receipts = false }

// Back asks for what the request spent, or for up to some units of each of its charges, as Settle does. It is nil where nothing
// was spent.
func (a *Asked) Back(ctx context.Context, whole bool, units int64) *Asked {
	give := request{op: algorithmGive}
	for _, c := range a.request.charges {
		n := c.spent
		if !whole {
			n = min(n, units)
		}
		if n == 0 || !c.fits {
			continue
		}
		spent := c.limit
		if l, err := c.policy.limitOf(ctx, c.key); err == nil && c.from.suffix == l.suffix {
			c.limit = l.current()
		}
		c.cost = algorithm.Back(spent, c.limit, n)
		give.charges = append(give.charges, c)
	}
	if len(give.charges) == 0 {
		return nil
	}
	return &Asked{nil, give}
}

// Reply is the verdict and each charge's reply, and the decision that they make. Without receipts, they only tell that something
// was charged.
func (a *Asked) Reply(receipts bool) (string, Decision) {
	var d Decision
	if a.plan == nil {
		return fmt.Sprint(a.request.verdict), d
	}
	var replies [][]int64
	for _, c := range a.request.charges {
		reply := slices.Clone(c.reply)
		if last := len(reply) - 1; !receipts && reply[last] != 0 {
			reply[last] = 1
		}
		replies = append(replies, reply)
	}
	d.Allowed = a.request.admitted()
	a.plan.results(&d)
	return fmt.Sprint(a.request.verdict, replies), d
}

// DecideInOne decides requests of one caller in one script.
func (g *Gate) DecideInOne(ctx context.Context, asked []*Asked) error {
	requests := make([]request, len(asked))
	for i, a := range asked {
		requests[i] = a.request
	}
	err := g.store.decide(ctx, requests)
	for i, a := range asked {
		a.request = requests[i]
	}
	return err
}

// DecideShared decides requests of as many callers in one script, none of whom keeps receipts. It returns in which order, and
// how many had another's answer told to them.
func (g *Gate) DecideShared(ctx context.Context, asked []*Asked) (order []int, merged int, err error) {
	s := g.store.(*redisStore)
	calls := make([]*call, len(asked))
	for i, a := range asked {
		a.request.merges = a.request.mergeable()
		calls[i] = &call{requests: []request{a.request}, words: words([]request{a.request})}
	}
	for range renewals {
		var b batch
		s.encode(&b, calls)
		order = order[:0]
		for i := range calls {
			order = append(order, i)
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(b.entryOf[i], b.entryOf[j]) })
		merged = len(calls) - len(b.entries)
		if err := s.send(ctx, new(commits), calls); err != nil {
			return nil, 0, err
		}
		if !otherPeriod(calls[0].reply) {
			break
		}
		for _, k := range calls {
			renew(k.requests, k.reply[1])
		}
	}
	for i, k := range calls {
		if err := decode(k.requests, k.reply); err != nil {
			return nil, 0, err
		}
		asked[i].request = k.requests[0]
	}
	return order, merged, nil
}

// Waiting is how many calls wait for the next round trip.
func (g *Gate) Waiting() (n int) {
	g.store.(*redisStore).each(func(c *commits) {
		c.mu.Lock()
		n += len(c.waiting)
		c.mu.Unlock()
	})
	return n
}

// Is says whether a request asks for an operation.
func (a *Asked) Is(op string) bool { return a.request.op == algorithm.Operation(op) }
