package core

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/line"
	"github.com/headgate/headgate/internal/memstore"
	"github.com/headgate/headgate/internal/request"
	"github.com/headgate/headgate/internal/threshold"
)

// Gate decides charges on state in Redis or in memory. An application has one Gate for all its
// policies. It is safe for concurrent use and must not be copied. The zero value is closed.
type Gate struct {
	cfg    Config
	prefix string // of every name in Redis, with the colon behind it
	tasks  *breaker.Tasks

	store   request.Store
	source  Source                                // of its decisions
	cluster bool                                  // one step decides only charges of one hash slot
	bound   func(context.Context) context.Context // gives a decision its deadline
	ping    func(context.Context) error
	local   *memstore.Store     // decides for Local policies while Redis fails
	cache   *denialCache        // nil if denials are not remembered
	lines   line.Lines[lineKey] // of background work

	thresholds *threshold.Watch[watched] // sees nothing unless somebody observes

	lent hub.Hub // to the packages of semaphores, Once and filters

	stated  *policyList // nil in memory
	ledgers *flight.Group
	holdID  func() string
	closed  atomic.Bool
}

// NewMemory returns a Gate that keeps its state in this process, for one process or for tests.
// Config.MaxKeys bounds its memory. NewMemory returns every fault at once.
func NewMemory(cfg Config) (*Gate, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	clock := cfg.clock()
	g := newGate(cfg, clock)
	g.store = g.local
	g.source = SourceMemory
	g.bound = func(ctx context.Context) context.Context { return ctx }
	g.ping = func(context.Context) error { return nil }
	g.lend(clock, keeper.Config{})
	g.lent.Clock = clock
	g.lent.Leases = g.lent.LocalLeases
	g.lent.Filters = memstore.NewFilters(clock)
	return g, nil
}

// isClosed reports whether the Gate decides nothing any more. The zero value does not either.
func (g *Gate) isClosed() bool { return g.store == nil || g.closed.Load() }

func newGate(cfg Config, clock func() int64) *Gate {
	g := &Gate{
		cfg: cfg, prefix: cfg.Prefix + ":", tasks: breaker.NewTasks(), holdID: newID,
		local: memstore.New(cfg.MaxKeys, clock),
	}
	g.ledgers = newLedgers(g.tasks, cfg.Timeout)
	g.thresholds = newWatch(g, clock)
	return g
}

// lend begins to lend what Gates in memory and on Redis have alike.
func (g *Gate) lend(clock func() int64, cfg keeper.Config) {
	cfg.Channel = g.prefix + "wake:" + newID()
	cfg.Prefix, cfg.Tasks, cfg.Closed = g.prefix, g.tasks, ErrClosed
	g.lent = hub.Hub{
		Prefix: g.prefix, Replicas: g.cfg.Replicas, Tasks: g.tasks, Closed: g.isClosed,
		Keeper: keeper.New(cfg),
	}
	g.lent.LocalLeases = memstore.NewLeases(clock, g.lent.Keeper.Tell)
	if g.cfg.Observe != nil {
		g.lent.Observe = func(ctx context.Context, e hub.Event) { g.cfg.Observe(ctx, e) }
	}
}

func newID() string { return rand.Text() }

// Reset forgets what was spent on the states of the charges, in Redis and in this process, whatever
// their costs. What Adjust has raised stays. A state belongs to a key, a policy and an algorithm.
// So set Charge.Limit if the charges to forget had one, as nethttp.Guard.Charges does. Do not
// cancel older reservations after it, nor settle them for less: that would refund what others have
// spent since. The errors are those of Decide.
func (g *Gate) Reset(ctx context.Context, charges ...Charge) error {
	start := time.Now()
	err := g.reset(ctx, charges)
	for i := range charges {
		g.tellKey(ctx, OpReset, charges[i].Policy, charges[i].Key, err, start)
	}
	return err
}

func (g *Gate) reset(ctx context.Context, charges []Charge) error {
	if g.isClosed() {
		return ErrClosed
	}
	if err := check(charges); err != nil {
		return err
	}
	var errs []error
	for i := range charges {
		a := &charges[i]
		limit, err := a.Policy.limitOf(a.Limit)
		if err == nil && limit.kind.Suffix != "" {
			err = g.forget(ctx, a.Key, limit)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// forget forgets the state of a limit on a key.
func (g *Gate) forget(ctx context.Context, key Key, limit *limit) error {
	c := chargeOn(key, limit, nil)
	defer g.cache.lifting(c.StateHash())()
	if g.source == SourceRedis {
		_ = g.local.Reset(ctx, &c.Charge) // this process's share; memory does not fail
	}
	return g.store.Reset(ctx, &c.Charge)
}

// Close rejects new decisions and leases, and callers that wait, with ErrClosed. Then it waits
// until the holders have released their leases, which it renews meanwhile, and until its goroutines
// have ended. When ctx ends, Close releases the leases that are left and returns an error that
// wraps ctx's. The Redis client stays open.
func (g *Gate) Close(ctx context.Context) error {
	g.closed.Store(true)
	if g.store == nil {
		return nil
	}
	g.ledgers.Close() // their figures could not be written any more
	err := g.lent.Keeper.Close(ctx)
	g.tasks.Stop()
	if err = errors.Join(err, g.tasks.Wait(ctx)); err != nil {
		return fmt.Errorf("core: close: %w", err)
	}
	return nil
}

// Must returns v, and panics if err is not nil. It is for values that are made once at start-up, such
// as package-level variables:
//
//	var perMinute = core.Must(core.NewPolicy(core.PolicyConfig{
//		Name: "api", Algorithm: core.PerMinute(100),
//	}))
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
