package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/keeper"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
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
	clock := cfg.clock()
	g := newGate(cfg, clock)
	g.cluster = !oneServer(client, cfg.Topology)
	store := redisstore.New(redisstore.Config{
		Config: trips.Config{
			Client: client, Cluster: g.cluster, Timeout: cfg.Timeout, Tasks: g.tasks, Notify: g.serverNotice,
		},
		Prefix: g.prefix, Probe: probe, Reword: reword,
	})
	g.store = store
	g.source = SourceRedis
	g.bound = func(ctx context.Context) context.Context {
		return deadline.Until(ctx, time.Now().Add(g.cfg.Timeout))
	}
	if !cfg.DisableDenialCache {
		g.cache = newDenialCache()
	}
	g.stated = newPolicyList(g.tasks, func(policies []*Policy) error {
		return statePolicies(store, policies)
	})
	g.ping = func(ctx context.Context) error { return pingRedis(ctx, store, g.cfg.Timeout) }
	g.lend(clock, keeper.Config{Listen: keeper.Listen(client), Server: store.Servers.Server})
	g.lent.Use = store.Servers.Use
	g.lent.Filters = redisstore.NewFilters(store)
	g.lent.Nodes = store.Servers.Nodes
	g.lent.Client = client
	g.lent.Leases = redisstore.NewLeases(store)
	return g, nil
}

func oneServer(client redis.UniversalClient, t Topology) bool {
	if t != TopologyAuto {
		return t == TopologyOneServer
	}
	_, ok := client.(*redis.Client)
	return ok
}

// reword replaces the error of a store by the one that core's callers see.
func reword(ctx context.Context, err error) error {
	ended := deadline.Err(ctx)
	switch class := trips.Classify(err); {
	case errors.As(err, new(request.OtherShape)), errors.Is(err, request.ErrPeriod): // no failure of Redis
		return err
	case ended != nil:
		return fmt.Errorf("core: %w", ended)
	case class == trips.Misconfigured:
		return fmt.Errorf("%w: %w", ErrMisconfigured, err)
	case class == trips.Overload:
		return ErrOverloaded
	case errors.Is(err, trips.ErrOpen):
		return ErrCircuitOpen
	}
	return fmt.Errorf("core: redis: %w", err)
}

var noticed = [...]Op{
	trips.Opened: OpCircuitOpened, trips.Closed: OpCircuitClosed, trips.Overloaded: OpOverload,
	trips.ScriptMissing: OpScriptMissing,
}

// serverNotice tells the observer what became of a server.
func (g *Gate) serverNotice(ctx context.Context, n trips.Notice) {
	if n.Kind == trips.Overloaded {
		n.Err = ErrOverloaded
	}
	switch n.Kind {
	case trips.Opened:
		g.lent.Keeper.Fails(n.Node)
	case trips.Closed:
		g.lent.Keeper.Answers(n.Node)
	case trips.ScriptMissing: // a server without a script has just begun
		g.lent.Keeper.RenewAll()
	}
	g.tell(ctx, &ServerEvent{Op: noticed[n.Kind], Node: n.Node, Err: n.Err})
}
