package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/memstore"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/request"
)

// NewRedis returns a Gate that keeps its state in Redis 6.2 or newer, or Valkey. It sends nothing
// yet: Ping checks the connection. The caller keeps the client and closes it after the Gate.
// NewRedis returns every fault at once.
func NewRedis(client redis.UniversalClient, cfg Config) (*Gate, error) {
	cfg, err := cfg.complete()
	if v := reflect.ValueOf(client); client == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		err = errors.Join(errors.New("core: the Redis client is nil"), err)
	}
	if err != nil {
		return nil, err
	}
	g := newGate(cfg)
	store := redisstore.New(redisstore.Config{
		Client: client, Prefix: g.prefix, Cluster: !oneServer(client, cfg.Topology), Tasks: g.tasks,
	})
	clock := cfg.clock()
	deadlines := &deadline.Deadlines{Timeout: cfg.Timeout, Expire: store.Expire}
	g.local = memstore.New(cfg.MaxKeys, clock)
	guard := &guard{store: store, shares: g.local, deadlines: deadlines, tell: g.tell}
	guard.breaker = breaker.New(cfg.MaxInFlight, cfg.Timeout, g.tasks, guard.probe)
	g.store, g.source, g.bound = guard, SourceRedis, deadlines.Bound
	if !cfg.DisableDenialCache {
		g.cache = newDenialCache()
	}
	g.ping = guard.ping
	g.recovered = guard.breaker.Closed
	g.keep(client, clock, &guardedLeases{redisstore.NewLeases(store), guard})
	return g, nil
}

func oneServer(client redis.UniversalClient, t Topology) bool {
	if t != Auto {
		return t == OneServer
	}
	_, ok := client.(*redis.Client)
	return ok
}

// guard is the store on Redis behind its breaker and within its deadline. Its errors are those that
// core's callers see.
type guard struct {
	store     *redisstore.Store
	shares    *memstore.Store // of Local policies
	breaker   *breaker.Breaker
	deadlines *deadline.Deadlines
	tell      func(context.Context, Event)
}

// Decide implements request.Store.
func (g *guard) Decide(ctx context.Context, requests []request.Request) error {
	return g.call(ctx, func(ctx context.Context) error { return g.store.Decide(ctx, requests) })
}

// Reset implements request.Store. It forgets this process's share too.
func (g *guard) Reset(ctx context.Context, c *request.Charge) error {
	_ = g.shares.Reset(ctx, c) // memory does not fail
	return g.call(ctx, func(ctx context.Context) error { return g.store.Reset(ctx, c) })
}

// Split implements request.Store.
func (g *guard) Split(charges []*request.Charge) [][]*request.Charge { return g.store.Split(charges) }

// TakesSlot implements request.Store.
func (g *guard) TakesSlot(charges []*request.Charge, outermost string) bool {
	return g.store.TakesSlot(charges, outermost)
}

// call calls f within the deadline, if the breaker lets it.
func (g *guard) call(ctx context.Context, f func(context.Context) error) (err error) {
	ctx, cancel, err := g.enter(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	err = redisstore.ErrPanicked
	defer g.leave(ctx, &err)
	err = f(ctx)
	return err
}

// enter begins a call, and bounds its context unless that was done before. Each nil is followed by
// a leave.
func (g *guard) enter(ctx context.Context) (context.Context, context.CancelFunc, error) {
	switch err := g.breaker.Enter(); {
	case errors.Is(err, breaker.ErrOpen):
		return nil, nil, ErrCircuitOpen
	case err != nil:
		return nil, nil, ErrTooManyInFlight
	}
	if _, ok := deadline.Caller(ctx); ok {
		return ctx, func() {}, nil
	}
	bounded, cancel := g.deadlines.Bound(ctx)
	return bounded, cancel, nil
}

// leave ends a call: it tells the breaker what the call's error says about Redis, and replaces that
// by an error for callers.
func (g *guard) leave(ctx context.Context, err *error) {
	defer func() { // after the call, because the observer may call the Gate
		for range g.store.ScriptsMissing() {
			g.tell(ctx, Event{Kind: EventScriptMissing})
		}
	}()
	if *err == nil {
		g.breaker.Succeed()
		return
	}
	caller, _ := deadline.Caller(ctx)
	switch class := redisstore.Classify(*err); {
	case class == redisstore.Panicked:
		g.breaker.Abandon()
		return
	case class == redisstore.Answered:
		g.breaker.Succeed()
	case errors.Is(caller.Err(), context.Canceled):
		g.breaker.Abandon()
		*err = fmt.Errorf("core: %w", caller.Err())
		return
	case class == redisstore.Misconfigured:
		g.breaker.Succeed()
		*err = fmt.Errorf("%w: %w", ErrMisconfigured, *err)
		return
	case class == redisstore.Shared:
		g.breaker.Abandon()
	case deadline.Patient(ctx):
		g.breaker.Fail()
	default:
		g.breaker.Doubt()
	}
	if ended := deadline.Err(caller); ended != nil {
		*err = fmt.Errorf("core: %w", ended)
		return
	}
	*err = fmt.Errorf("core: redis: %w", *err)
}

// guardedLeases are the leases on Redis behind the guard.
type guardedLeases struct {
	leases *redisstore.Leases
	guard  *guard
}

// guarded calls f behind the guard.
func guarded[T any](ctx context.Context, g *guard, f func(context.Context) (T, error)) (v T, err error) {
	err = g.call(ctx, func(ctx context.Context) (err error) {
		v, err = f(ctx)
		return err
	})
	return v, err
}

func (l *guardedLeases) Acquire(
	ctx context.Context, scope string, q lease.Request,
) (lease.Grant, error) {
	return guarded(ctx, l.guard, func(ctx context.Context) (lease.Grant, error) {
		return l.leases.Acquire(ctx, scope, q)
	})
}

func (l *guardedLeases) Renew(
	ctx context.Context, scope string, micros int64, ids []string,
) ([]int64, error) {
	return guarded(ctx, l.guard, func(ctx context.Context) ([]int64, error) {
		return l.leases.Renew(ctx, scope, micros, ids)
	})
}

func (l *guardedLeases) Release(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return guarded(ctx, l.guard, func(ctx context.Context) ([]int64, error) {
		return l.leases.Release(ctx, scope, ids)
	})
}

func (l *guardedLeases) Evict(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return guarded(ctx, l.guard, func(ctx context.Context) ([]int64, error) {
		return l.leases.Evict(ctx, scope, ids)
	})
}

func (l *guardedLeases) List(
	ctx context.Context, scope string,
) (now int64, all []lease.Entry, err error) {
	err = l.guard.call(ctx, func(ctx context.Context) (err error) {
		now, all, err = l.leases.List(ctx, scope)
		return err
	})
	return now, all, err
}
