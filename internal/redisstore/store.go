// Package redisstore decides requests on state in Redis. Calls that wait for the same server share a round trip, and calls
// that share a hash slot share a script.
package redisstore

import (
	"context"
	"errors"
	"sync"

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
	// Tasks run the calls of a client that does not heed its contexts' deadlines.
	Tasks *breaker.Tasks
	// ScriptMissing is called when the server did not know a script.
	ScriptMissing func()
}

// Store is a request.Store on Redis. Each method ends when its context does. It is safe for concurrent use.
type Store struct {
	Config
	// inline says that a call of the client ends at the deadline of its context. Calls of other clients are left behind
	// then, and end by the client's own timeouts.
	inline bool
	server queue    // if not Cluster
	nodes  sync.Map // otherwise: address to *queue

	decides, admits, leases script
	clock                   func() int64 // of a test, in microseconds; nil for Redis's own
}

var (
	decideScript = newScript(headgate.DecideScript())
	admitScript  = newScript(headgate.AdmitScript())
	leaseScript  = newScript(headgate.LeaseScript())
)

// New returns a Store. It sends nothing.
func New(cfg Config) *Store {
	s := &Store{Config: cfg, decides: decideScript, admits: admitScript, leases: leaseScript}
	// No option makes a client heed its contexts' deadlines later and keeps its hooks.
	switch c := cfg.Client.(type) {
	case *redis.Client:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		s.inline = c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		s.inline = c.Options().ContextTimeoutEnabled
	}
	if s.ScriptMissing == nil {
		s.ScriptMissing = func() {}
	}
	s.server.store = s
	return s
}

// InjectClock replaces the clock of Redis by one in microseconds. It is for tests.
func (s *Store) InjectClock(now func() int64) {
	s.clock = now
	s.decides, s.admits = newScript(headgate.DecideScriptInjected()), newScript(headgate.AdmitScriptInjected())
	s.leases = newScript(headgate.LeaseScriptInjected())
}

// attempts is how often a request is sent if a calendar's period ends on the way.
const attempts = 3

// Decide implements request.Store. Requests that take a slot share no script with others.
func (s *Store) Decide(ctx context.Context, requests []request.Request) error {
	k := acquireCall(ctx, requests)
	defer k.release()
	for range attempts {
		reply, err := s.exchange(ctx, k)
		if err != nil {
			return err
		}
		now, passed := periodPassed(reply)
		if !passed {
			return k.decode(reply)
		}
		renewPeriods(requests, now)
	}
	return ErrPeriod
}

func (s *Store) exchange(ctx context.Context, k *call) ([]int64, error) {
	if k.requests[0].Slot == nil {
		reply, err := s.queueFor(ctx, k.requests).do(ctx, k)
		if !errors.As(err, new(errSplit)) {
			return reply, err
		}
	}
	return s.alone(ctx, k)
}

// renewPeriods replaces the limits whose period does not hold now.
func renewPeriods(requests []request.Request, now int64) {
	for i := range requests {
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
	return s.bounded(ctx, func() error { return s.Client.Del(ctx, s.Prefix+c.Key+c.Suffix).Err() })
}

// Expire makes the callers leave that wait until a deadline that has passed.
func (s *Store) Expire(d *deadline.Shared) { s.each(func(q *queue) { q.expire(d) }) }

// Waiting returns the number of calls that wait for the next round trip.
func (s *Store) Waiting() (n int) {
	s.each(func(q *queue) {
		q.mu.Lock()
		n += len(q.waiting)
		q.mu.Unlock()
	})
	return n
}

func (s *Store) each(f func(*queue)) {
	f(&s.server)
	s.nodes.Range(func(_, q any) bool {
		f(q.(*queue))
		return true
	})
}

// bounded ends a call of the client when the context ends, even if the client would not.
func (s *Store) bounded(ctx context.Context, call func() error) error {
	if s.inline {
		return call()
	}
	done := make(chan error, 1)
	s.Tasks.Go(func() { done <- call() })
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
