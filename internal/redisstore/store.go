// Package redisstore decides requests on state in Redis. Calls that wait for the same server share
// a round trip, and calls that share a hash slot share a script.
package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// Config configures a Store.
type Config struct {
	Client redis.UniversalClient
	Prefix string // of every name, with the colon behind it
	// Cluster says that one script decides only keys of one hash slot.
	Cluster bool
	// Timeout bounds a decision.
	Timeout time.Duration
	// Tasks run what sends and probes.
	Tasks *breaker.Tasks
	// Probe returns a request on a key of that outermost part that decides nothing for anybody.
	Probe func(outermost string) request.Request
	// Reword returns the error that callers see in place of one of a Store, of its Leases or of its
	// Filters. Its context is the caller's. A nil Reword leaves errors as they are, and so do Insist
	// and Check.
	Reword func(ctx context.Context, err error) error
	// Notify receives what becomes of a server. It may be nil.
	Notify func(context.Context, Notice)
}

const (
	// quiet is how long a server says nothing before it counts as gone, or Config.Timeout if that
	// is longer.
	quiet = 250 * time.Millisecond
	// patience bounds a round trip, the client's handshake included, or five times Config.Timeout
	// if that is longer.
	patience = time.Second
)

// Store is a request.Store on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Store struct {
	Config
	// inline says that a call of the client ends at the deadline of its context. Calls of other
	// clients are left behind then, and end by the client's own timeouts.
	inline bool
	server *node       // that of a client for one server; else what no server is known for
	nodes  sync.Map    // otherwise: address to *node
	routed atomic.Bool // the client knows the cluster

	quiet, patience time.Duration
	trips           deadline.Deadlines // of round trips
	alone           deadline.Deadlines // of those that a caller makes alone

	decides, admits, leases, slots, filters script
	resets                                  *redis.Script

	crowds     crowds
	calls      sync.Pool    // to be used again
	missing    atomic.Int64 // scripts that the server did not know
	serverTime atomic.Int64 // when a calendar's period was last found to have passed
	clock      func() int64 // of a test, in microseconds; nil for Redis's own
}

var (
	decideScript = newScript(headgate.Script("decide"))
	admitScript  = newScript(headgate.Script("admit"))
	leaseScript  = newScript(headgate.Script("lease"))
	slotScript   = newScript(headgate.Script("slot"))
	filterScript = newScript(headgate.Script("filter"))
	resetScript  = redis.NewScript(headgate.Script("reset"))
)

// New returns a Store. It sends nothing.
func New(cfg Config) *Store {
	s := &Store{
		Config: cfg, decides: decideScript, admits: admitScript, leases: leaseScript,
		slots: slotScript, filters: filterScript, resets: resetScript,
		quiet: max(quiet, cfg.Timeout), patience: max(patience, 5*cfg.Timeout),
	}
	s.trips.Timeout, s.alone.Timeout = s.patience, cfg.Timeout
	// No option makes a client heed its contexts' deadlines later and keeps its hooks.
	switch c := cfg.Client.(type) {
	case *redis.Client:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		s.inline = c.Options().ContextTimeoutEnabled
	}
	one, _ := cfg.Client.(*redis.Client)
	addr := ""
	if one != nil {
		addr = one.Options().Addr
	}
	s.server = newNode(s, addr, one)
	return s
}

// InjectClock replaces the clock of Redis by one in microseconds, and the scripts by those on such a
// clock. It is for tests.
func (s *Store) InjectClock(now func() int64, script func(name string) string) {
	s.clock = now
	s.decides = newScript(script("decide"))
	s.admits = newScript(script("admit"))
	s.leases = newScript(script("lease"))
	s.slots = newScript(script("slot"))
	s.filters = newScript(script("filter"))
	s.resets = redis.NewScript(script("reset"))
}

// clocked appends the time to the arguments of a script on an injected clock.
func (s *Store) clocked(args []any) []any {
	if s.clock != nil {
		args = append(args, s.clock())
	}
	return args
}

// renewPeriods replaces the limits whose period does not hold now, except in a request that is
// meant for that period.
func renewPeriods(requests []request.Request, now int64) {
	for i := range requests {
		if requests[i].IsBound() {
			continue
		}
		for _, c := range requests[i].Charges {
			if p, ok := c.Limit.(algorithm.Periodic); ok {
				if from, until := p.Period(); now < from || until <= now {
					c.Limit = p.At(now)
				}
			}
		}
	}
}

// Reset implements request.Store.
func (s *Store) Reset(ctx context.Context, c *request.Charge) error {
	name, holds := s.Prefix+c.Key+c.Stored(), s.Prefix+c.Key+c.Suffix+request.HoldsSuffix
	return s.outcome(ctx, s.within(ctx, func(ctx context.Context) error {
		if c.Label == "" {
			return s.Client.Del(ctx, name, holds).Err()
		}
		return s.resets.Run(ctx, s.Client, []string{name, holds}, s.clocked([]any{c.Label})...).Err()
	}))
}

// Answers reports whether the server of an outermost part is asked.
func (s *Store) Answers(ctx context.Context, outermost string) bool {
	return !s.nodeOf(ctx, outermost).circuit.IsOpen()
}

// outcome returns the error that the caller of an operation sees. It notifies of the scripts that the
// server did not know since the last outcome.
func (s *Store) outcome(ctx context.Context, err error) error {
	if s.missing.Load() > 0 && s.Notify != nil {
		for range s.missing.Swap(0) {
			s.Notify(ctx, Notice{Kind: ScriptMissing})
		}
	}
	switch {
	case err == nil || s.Reword == nil:
		return err
	case errors.As(err, new(request.Unsent)):
		return request.Unsent{Err: s.Reword(ctx, err)}
	}
	return s.Reword(ctx, err)
}

// Waiting returns the number of calls that wait for the next round trip.
func (s *Store) Waiting() (total int) {
	count := func(n *node) {
		n.queue.mu.Lock()
		total += len(n.queue.waiting)
		n.queue.mu.Unlock()
	}
	count(s.server)
	s.nodes.Range(func(_, n any) bool {
		count(n.(*node))
		return true
	})
	return total
}

// within calls f with a context that ends with ctx or at its deadline, and within the timeout.
func (s *Store) within(ctx context.Context, f func(context.Context) error) error {
	end := time.Now().Add(s.Timeout)
	if at, ok := ctx.Deadline(); ok && at.Before(end) {
		end = at
	}
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	return s.bounded(ctx, func() error { return f(ctx) })
}

// bounded ends a call of the client when the context ends, even if the client would not.
func (s *Store) bounded(ctx context.Context, call func() error) error {
	if s.inline {
		return call()
	}
	done := make(chan error, 1)
	s.Tasks.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				done <- &panicError{p}
			}
		}()
		done <- call()
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
