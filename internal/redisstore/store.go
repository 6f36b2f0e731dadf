// Package redisstore decides requests on state in Redis. Calls that wait for the same server share
// a round trip, and calls that share a hash slot share a script.
package redisstore

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"

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
}

// Store is a request.Store on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Store struct {
	Config
	// inline says that a call of the client ends at the deadline of its context. Calls of other
	// clients are left behind then, and end by the client's own timeouts.
	inline bool
	server queue    // if not Cluster
	nodes  sync.Map // otherwise: address to *queue

	decides, admits, leases script
	missing                 atomic.Int64 // scripts that the server did not know
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
	s.server.store = s
	return s
}

// InjectClock replaces the clock of Redis by one in microseconds. It is for tests.
func (s *Store) InjectClock(now func() int64) {
	s.clock = now
	s.decides = newScript(headgate.DecideScriptInjected())
	s.admits = newScript(headgate.AdmitScriptInjected())
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
		if err == nil || !errors.As(err, new(errSplit)) {
			return reply, err
		}
	}
	return s.alone(ctx, k)
}

// queueFor returns the queue for the server of the requests.
func (s *Store) queueFor(ctx context.Context, requests []request.Request) *queue {
	if !s.Cluster {
		return &s.server
	}
	return s.nodeQueue(ctx, requests[0].Charges[0])
}

// alone sends a call that shares its script with no others.
func (s *Store) alone(ctx context.Context, k *call) ([]int64, error) {
	b := s.encode([]*call{k})
	reply, err := s.evaluate(ctx, b)
	if err != nil {
		return nil, err // the client's call may still use the batch
	}
	b.release()
	return reply, nil
}

// send decides a batch of calls in one round trip, by one script or by one for each slot. It leaves
// in each call its part of the reply or its error. An error that it returns is that of all calls.
func (s *Store) send(ctx context.Context, q *queue, calls []*call) error {
	if s.Cluster && len(calls) > 1 {
		return s.sendSlots(ctx, q, calls)
	}
	b := s.encode(calls)
	q.encoded(calls)
	reply, err := s.evaluate(ctx, b)
	if err != nil {
		return split(err, calls) // the client's call may still use the batch
	}
	defer b.release()
	return b.distribute(reply)
}

// evaluate calls the batch's script, and ends when its context does.
func (s *Store) evaluate(ctx context.Context, b *batch) ([]int64, error) {
	if s.inline { // as bounded does, without a closure and a reply on the heap
		return s.evalsha(ctx, b)
	}
	var reply []int64 // a call that is left behind writes it at any time
	if err := s.bounded(ctx, func() (err error) {
		reply, err = s.evalsha(ctx, b)
		return err
	}); err != nil {
		return nil, err
	}
	return reply, nil
}

func (s *Store) evalsha(ctx context.Context, b *batch) ([]int64, error) {
	reply, err := s.process(ctx, b.args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		b.withSource() // nothing ran, so the second command counts once
		s.missing.Add(1)
		return s.process(ctx, b.args)
	}
	return reply, err
}

func (s *Store) process(ctx context.Context, args []any) ([]int64, error) {
	cmd := redis.NewIntSliceCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	_ = s.Client.Process(ctx, once{cmd}) // the command keeps its error
	reply, err := cmd.Result()
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) {
		err = s.askAgain(ctx, err)
	}
	return reply, err
}

// askAgain finds out why Redis hung up. To a client without a password it answers a short command
// with an error, and may close the connection at a long one.
func (s *Store) askAgain(ctx context.Context, err error) error {
	short := redis.NewIntSliceCmd(ctx, "time")
	_ = s.Client.Process(ctx, once{short})
	if redis.HasErrorPrefix(short.Err(), "NOAUTH") {
		return short.Err()
	}
	return err
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

// ScriptsMissing returns how many scripts the server did not know since it was last asked.
func (s *Store) ScriptsMissing() int64 {
	if s.missing.Load() == 0 {
		return 0
	}
	return s.missing.Swap(0)
}

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
