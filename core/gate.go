package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Gate decides charges, on state in Redis or in this process's memory. An application has one, for all its policies.
// It is safe for concurrent use and must not be copied. The zero value is closed.
type Gate struct {
	store     store
	prefix    string
	deadlines deadlines
	perSlot   bool // one request for each outermost part
	observe   func(context.Context, Event)
	circuit   *circuit     // nil in memory
	local     *memoryStore // decides for Local policies while Redis fails
	replicas  int
	cache     *denialCache // nil in memory

	leases *leases

	denials atomic.Int64
	closed  atomic.Bool
	tasks   *tasks
}

// NewRedis returns a Gate that keeps its state in Redis, 6.2 or newer, or Valkey. It sends nothing yet: Ping checks the
// connection. The client stays the caller's, who closes it after the Gate. It returns every fault at once.
func NewRedis(client redis.UniversalClient, cfg Config) (*Gate, error) {
	cfg, err := cfg.complete()
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		err = errors.Join(errors.New("core: the Redis client is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	t := new(tasks)
	s := newRedisStore(client, cfg.Prefix+":", t)
	g := newGate(cfg, s)
	g.tasks, g.deadlines.expire = t, s.expire
	g.perSlot = !oneServer(client, cfg.Topology)
	s.perSlot = g.perSlot
	g.local = newMemoryStore(cfg)
	g.circuit = newCircuit(cfg.MaxInFlight, cfg.Timeout, t, g.probe)
	if !cfg.DisableDenialCache {
		g.cache = newDenialCache()
	}
	g.leases = newLeases(g, client, g.local.clock)
	return g, nil
}

// NewMemory returns a Gate that keeps its state in this process, for one process or for tests. Its memory is bounded
// by Config.MaxKeys. It returns every fault at once.
func NewMemory(cfg Config) (*Gate, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	m := newMemoryStore(cfg)
	g := newGate(cfg, m)
	g.tasks = new(tasks)
	g.leases = newLeases(g, nil, m.clock)
	return g, nil
}

func newGate(cfg Config, s store) *Gate {
	return &Gate{store: s, prefix: cfg.Prefix + ":", deadlines: deadlines{timeout: cfg.Timeout, expire: func(*sharedDeadline) {}}, observe: cfg.Observe, replicas: cfg.Replicas}
}

// Decide spends all charges or none, and says which. On a cluster, charges whose keys have different outermost parts
// take a script each, one after the other: until a later one has answered, and where it denies until the earlier ones
// are given back, others see those as spent. If giving back fails they stay spent.
//
// The error is nil when a failure mode decided; see [Decision]. Else it wraps the error of a ctx that has ended (what was
// sent may have been spent then), [ErrCharge], [ErrKey], [ErrMisconfigured] or [ErrClosed]. With any error
// the Decision denies.
func (g *Gate) Decide(ctx context.Context, charges ...Charge) (d Decision, err error) {
	_, err = g.decide(ctx, &d, algorithmDecide, 0, charges)
	return d, err
}

// Peek answers as Decide would, and spends nothing.
func (g *Gate) Peek(ctx context.Context, charges ...Charge) (d Decision, err error) {
	_, err = g.decide(ctx, &d, algorithmPeek, 0, charges)
	return d, err
}

// AtMost spends as much as fits: of every charge the same number of units, at most their Cost, which is one and the
// same. It returns that number. The Decision is allowed if it is above 0, or nothing was wanted. Its waits are those for one unit.
func (g *Gate) AtMost(ctx context.Context, charges ...Charge) (granted int64, d Decision, err error) {
	units, bound := slices.Clone(charges), int64(0)
	for i, c := range charges {
		units[i].Cost = min(c.Cost, 1)
		if i == 0 {
			bound = c.Cost
		} else if c.Cost != charges[0].Cost {
			bound = unequal
		}
	}
	granted, err = g.decide(ctx, &d, algorithmAtMost, bound, units)
	return granted, d, err
}

// unequal is the bound of an AtMost whose costs differ.
const unequal = -1

// Reset forgets what was spent on a key under a policy, here and in Redis. Reservations from before are not to be cancelled,
// nor settled for less, after it: that gives back what others have spent since.
func (g *Gate) Reset(ctx context.Context, p *Policy, key Key) error {
	start := time.Now()
	err := g.reset(ctx, p, key)
	if g.observe != nil {
		g.observe(ctx, Event{Operation: "reset", Err: err, Took: time.Since(start)})
	}
	return err
}

func (g *Gate) reset(ctx context.Context, p *Policy, key Key) (err error) {
	if g.store == nil || g.closed.Load() {
		return ErrClosed
	}
	if err := check([]Charge{{Policy: p, Key: key}}); err != nil {
		return err
	}
	limit, err := p.limitOf(ctx, key)
	if err != nil {
		return err
	}
	if limit.suffix == "" {
		return nil
	}
	c := &charge{key: key, from: limit, number: key.number() ^ limit.number}
	defer g.cache.lifting(c.number)()
	if g.local != nil {
		_ = g.local.reset(ctx, c) // memory does not fail
	}
	if g.circuit == nil {
		return g.store.reset(ctx, c)
	}
	if err := g.circuit.enter(); err != nil {
		return err
	}
	bounded, cancel := g.deadlines.bound(ctx)
	defer cancel()
	err = errPanicked
	defer g.judge(ctx, true, &err)
	err = g.store.reset(bounded, c)
	return err
}

// Close refuses further decisions and leases, answers who waits for one with ErrClosed, and waits for what runs in the
// background and for leases to be released, which are renewed until then; at most until ctx ends, when it releases what is
// left. The Redis client stays open.
func (g *Gate) Close(ctx context.Context) error {
	g.closed.Store(true)
	if g.tasks == nil {
		return nil
	}
	if err := errors.Join(g.leases.close(ctx), g.tasks.wait(ctx)); err != nil {
		return fmt.Errorf("core: close: %w", err)
	}
	return nil
}
