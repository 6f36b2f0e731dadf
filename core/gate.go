package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/memstore"
	"github.com/headgate/headgate/internal/request"
)

// Gate decides charges, on state in Redis or in this process's memory. An application has one, for all its policies.
// It is safe for concurrent use and must not be copied. The zero value is closed.
type Gate struct {
	prefix   string
	observe  func(context.Context, Event)
	replicas int
	timeout  time.Duration
	tasks    *breaker.Tasks

	store  request.Store
	source Source                                                      // of its decisions
	bound  func(context.Context) (context.Context, context.CancelFunc) // to the end of a decision
	ping   func(context.Context) error
	local  *memstore.Store // decides for Local policies while Redis fails
	cache  *denialCache    // nil if denials are not remembered

	leases, localLeases request.LeaseStore // these are the same in memory
	keeper              *keeper.Keeper
	recovered           func() bool // reports whether Redis is asked again after a failure

	denials atomic.Int64
	closed  atomic.Bool
}

// NewMemory returns a Gate that keeps its state in this process, for one process or for tests. Config.MaxKeys bounds its
// memory. NewMemory returns every fault at once.
func NewMemory(cfg Config) (*Gate, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	g := newGate(cfg)
	clock := cfg.clock()
	g.local = memstore.New(cfg.MaxKeys, clock)
	g.store, g.source = g.local, SourceMemory
	g.bound = func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	g.ping = func(context.Context) error { return nil }
	g.recovered = func() bool { return true }
	g.keep(nil, clock, nil)
	return g, nil
}

func newGate(cfg Config) *Gate {
	return &Gate{
		prefix: cfg.Prefix + ":", observe: cfg.Observe, replicas: cfg.Replicas, timeout: cfg.Timeout, tasks: new(breaker.Tasks),
	}
}

// keep sets up the leases: in a store, or in memory if that is nil.
func (g *Gate) keep(client redis.UniversalClient, clock func() int64, leases request.LeaseStore) {
	g.keeper = keeper.New(keeper.Config{
		Client: client, Prefix: g.prefix, ID: newID(), Tasks: g.tasks, Lost: ErrLeaseLost, Closed: ErrClosed, Notify: g.notice,
	})
	g.localLeases = memstore.NewLeases(clock, g.keeper.Tell)
	if g.leases = leases; leases == nil {
		g.leases = g.localLeases
	}
}

// Decide spends all charges or none, and says which. On a cluster, charges whose keys have different outermost parts
// take a script each, one after the other: until a later one has answered, and where it denies until the earlier ones
// are given back, others see those as spent. If giving back fails they stay spent.
//
// The error is nil when a failure mode decided; see [Decision]. Otherwise it wraps the error of a ctx that has ended (what
// was sent may have been spent then), [ErrCharge], [ErrKey], [ErrMisconfigured] or [ErrClosed]. With any error
// the Decision denies.
func (g *Gate) Decide(ctx context.Context, charges ...Charge) (d Decision, err error) {
	_, err = g.decide(ctx, &d, algorithm.Decide, 0, charges)
	return d, err
}

// Peek answers as Decide would, and spends nothing.
func (g *Gate) Peek(ctx context.Context, charges ...Charge) (d Decision, err error) {
	_, err = g.decide(ctx, &d, algorithm.Peek, 0, charges)
	return d, err
}

// AtMost spends every charge up to n times, as often as all of them fit, and returns how often that was. The Decision is
// allowed if that is above 0, or n is 0. Its waits are those for one time. With a Cost of 1 it takes n units, or as many as
// there are.
func (g *Gate) AtMost(ctx context.Context, n int64, charges ...Charge) (granted int64, d Decision, err error) {
	if n < 0 {
		return 0, d, fmt.Errorf("%w: AtMost %d times", ErrCharge, n)
	}
	granted, err = g.decide(ctx, &d, algorithm.AtMost, n, charges)
	return granted, d, err
}

// Reset forgets what was spent on a key under a policy, here and in Redis. Reservations from before are not to be cancelled,
// nor settled for less, after it: that gives back what others have spent since.
func (g *Gate) Reset(ctx context.Context, p *Policy, key Key) error {
	start := time.Now()
	err := g.reset(ctx, p, key)
	g.tell(ctx, Event{Kind: EventReset, Policy: p, Err: err, Took: time.Since(start)})
	return err
}

func (g *Gate) reset(ctx context.Context, p *Policy, key Key) error {
	if g.store == nil || g.closed.Load() {
		return ErrClosed
	}
	if err := check([]Charge{{Policy: p, Key: key}}); err != nil {
		return err
	}
	limit, err := p.limitOf(ctx, key, nil)
	if err != nil {
		return err
	}
	if limit.suffix == "" {
		return nil
	}
	var c charge
	c.at(key, limit)
	defer g.cache.lifting(c.Hash)()
	return g.store.Reset(ctx, &c.Charge)
}

// Close refuses further decisions and leases, answers callers that wait for one with ErrClosed, and waits for its goroutines
// and for leases to be released. Until then it renews them. When ctx ends it releases what is left. The Redis client
// stays open.
func (g *Gate) Close(ctx context.Context) error {
	g.closed.Store(true)
	if g.store == nil {
		return nil
	}
	if err := errors.Join(g.keeper.Close(ctx), g.tasks.Wait(ctx)); err != nil {
		return fmt.Errorf("core: close: %w", err)
	}
	return nil
}
