package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/bloom"
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
	probe, fault := probeRequest()
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	g := newGate(cfg)
	clock := cfg.clock()
	g.local = memstore.New(cfg.MaxKeys, clock)
	guard := &guard{gate: g}
	guard.store = redisstore.New(redisstore.Config{
		Client: client, Prefix: g.prefix, Cluster: !oneServer(client, cfg.Topology),
		Timeout: cfg.Timeout, Tasks: g.tasks, Probe: probe, Notify: guard.notice,
	})
	g.store, g.source, g.bound = guard, SourceRedis, guard.bound
	if !cfg.DisableDenialCache {
		g.cache = newDenialCache()
	}
	g.ping, g.answers = guard.ping, guard.store.Answers
	g.filters = &guardedFilters{redisstore.NewFilters(guard.store), guard}
	g.keep(client, clock, &guardedLeases{redisstore.NewLeases(guard.store), guard})
	return g, nil
}

func oneServer(client redis.UniversalClient, t Topology) bool {
	if t != TopologyAuto {
		return t == TopologyOneServer
	}
	_, ok := client.(*redis.Client)
	return ok
}

// guard is the store on Redis within its deadline. Its errors are those that core's callers see.
type guard struct {
	store *redisstore.Store
	gate  *Gate
}

// bound gives a decision its deadline.
func (g *guard) bound(ctx context.Context) context.Context {
	return deadline.Until(ctx, time.Now().Add(g.gate.timeout))
}

// Decide implements request.Store.
func (g *guard) Decide(ctx context.Context, requests []request.Request) error {
	err := g.store.Decide(ctx, requests)
	return g.explain(ctx, err)
}

// Reset implements request.Store. It forgets this process's share too.
func (g *guard) Reset(ctx context.Context, c *request.Charge) error {
	_ = g.gate.local.Reset(ctx, c) // memory does not fail
	return g.explain(ctx, g.store.Reset(ctx, c))
}

// Scan implements request.Store.
func (g *guard) Scan(
	ctx context.Context, suffix string, f func(key, value string, now int64) bool,
) error {
	return g.explain(ctx, g.store.Scan(ctx, suffix, f))
}

// Split implements request.Store.
func (g *guard) Split(charges []*request.Charge) [][]*request.Charge { return g.store.Split(charges) }

// TakesSlot implements request.Store.
func (g *guard) TakesSlot(charges []*request.Charge, outermost string) bool {
	return g.store.TakesSlot(charges, outermost)
}

// explain replaces the error of a call by one for callers.
func (g *guard) explain(ctx context.Context, err error) error {
	for range g.store.ScriptsMissing() {
		g.gate.tell(ctx, Event{Kind: EventScriptMissing})
	}
	if err == nil {
		return nil
	}
	if errors.As(err, new(request.Unsent)) {
		return request.Unsent{Err: reword(ctx, err)}
	}
	return reword(ctx, err)
}

func reword(ctx context.Context, err error) error {
	ended := deadline.Err(ctx)
	switch class := redisstore.Classify(err); {
	case errors.As(err, new(request.OtherShape)), errors.Is(err, request.ErrPeriod): // no failure of Redis
		return err
	case ended != nil:
		return fmt.Errorf("core: %w", ended)
	case class == redisstore.Misconfigured:
		return fmt.Errorf("%w: %w", ErrMisconfigured, err)
	case class == redisstore.Overload:
		return ErrOverloaded
	case errors.Is(err, redisstore.ErrOpen):
		return ErrCircuitOpen
	}
	return fmt.Errorf("core: redis: %w", err)
}

// notice tells the observer what became of a server.
func (g *guard) notice(n redisstore.Notice) {
	e := Event{Node: n.Node, Err: n.Err}
	switch n.Kind {
	case redisstore.Opened:
		e.Kind = EventCircuitOpened
	case redisstore.Closed:
		e.Kind = EventCircuitClosed
	case redisstore.Overloaded:
		e.Kind, e.Err = EventOverload, ErrOverloaded
	}
	g.gate.tell(context.Background(), e)
	if n.Kind == redisstore.Opened {
		g.gate.keeper.Wake() // the waiters' failure modes decide
	}
}

// guardedLeases are the leases on Redis, with errors for callers.
type guardedLeases struct {
	leases *redisstore.Leases
	guard  *guard
}

func (l *guardedLeases) Acquire(
	ctx context.Context, scope string, q lease.Request,
) (lease.Grant, error) {
	grant, err := l.leases.Acquire(ctx, scope, q)
	return grant, l.guard.explain(ctx, err)
}

func (l *guardedLeases) Renew(
	ctx context.Context, scope string, micros int64, ids []string,
) ([]int64, error) {
	left, err := l.leases.Renew(ctx, scope, micros, ids)
	return left, l.guard.explain(ctx, err)
}

func (l *guardedLeases) Release(ctx context.Context, scope string, ids []string) ([]int64, error) {
	was, err := l.leases.Release(ctx, scope, ids)
	return was, l.guard.explain(ctx, err)
}

func (l *guardedLeases) Evict(ctx context.Context, scope string, ids []string) ([]int64, error) {
	was, err := l.leases.Evict(ctx, scope, ids)
	return was, l.guard.explain(ctx, err)
}

func (l *guardedLeases) List(
	ctx context.Context, scope string,
) (now int64, all []lease.Entry, err error) {
	now, all, err = l.leases.List(ctx, scope)
	return now, all, l.guard.explain(ctx, err)
}

// guardedFilters are the filters on Redis, with errors for callers.
type guardedFilters struct {
	filters *redisstore.Filters
	guard   *guard
}

func (f *guardedFilters) Ask(
	ctx context.Context, filter string, s bloom.Shape, items []bloom.Item,
) ([]int64, error) {
	replies, err := f.filters.Ask(ctx, filter, s, items)
	return replies, f.guard.explain(ctx, err)
}

func (f *guardedFilters) Count(
	ctx context.Context, filter string, s bloom.Shape, part int64,
) ([2]int64, error) {
	set, err := f.filters.Count(ctx, filter, s, part)
	return set, f.guard.explain(ctx, err)
}

func (f *guardedFilters) Reset(ctx context.Context, filter string, s bloom.Shape) error {
	return f.guard.explain(ctx, f.filters.Reset(ctx, filter, s))
}
