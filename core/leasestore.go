package core

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lease"
)

// leaseStore keeps the leases of scopes.
type leaseStore interface {
	acquire(ctx context.Context, scope string, q lease.Request) (lease.Grant, error)
	renew(ctx context.Context, scope string, micros int64, ids []string) (left []int64, err error)
	release(ctx context.Context, scope string, ids []string) ([]int64, error)
	force(ctx context.Context, scope string, ids []string) ([]int64, error)
	list(ctx context.Context, scope string) (now int64, _ []lease.Entry, err error)
}

var leaseScript = newScript(headgate.LeaseScript())

// redisLeases keeps leases in Redis.
type redisLeases struct {
	*redisStore
	gate   *Gate
	script script
}

// onceSlice is a command that go-redis sends once only.
type onceSlice struct{ *redis.Cmd }

// NoRetry tells go-redis.
func (onceSlice) NoRetry() bool { return true }

func (r *redisLeases) run(ctx context.Context, scope, operation string, args ...any) (_ []any, err error) {
	if err := r.gate.circuit.enter(); err != nil {
		return nil, err
	}
	bounded, cancel := r.gate.deadlines.bound(ctx)
	defer cancel()
	err = errPanicked
	defer r.gate.judge(ctx, true, &err)
	var reply []any // of a call that was left behind it is written at any time
	if err = r.bounded(bounded, func() (err error) {
		reply, err = r.send(bounded, r.script.sha, "evalsha", scope, operation, args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			reply, err = r.send(bounded, r.script.source, "eval", scope, operation, args)
		}
		return err
	}); err != nil {
		return nil, err
	}
	return reply, nil
}

func (r *redisLeases) send(ctx context.Context, script, command, scope, operation string, args []any) ([]any, error) {
	all := make([]any, 0, 10+len(args))
	all = appendLeaseKeys(append(all, command, script, 5), scope)
	all = append(append(all, operation), args...)
	if r.now != nil {
		all = append(all, r.now())
	}
	cmd := redis.NewCmd(ctx, all...)
	cmd.SetFirstKeyPos(3)
	_ = r.client.Process(ctx, onceSlice{cmd}) // the command keeps its error
	return cmd.Slice()
}

// integers are a reply's, or errReply.
func integers(reply []any, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	all := make([]int64, len(reply))
	for i, r := range reply {
		n, ok := r.(int64)
		if !ok {
			return nil, errReply
		}
		all[i] = n
	}
	return all, nil
}

// appendLeaseKeys appends the KEYS of the script.
func appendLeaseKeys(args []any, scope string) []any {
	return append(args, scope+":h", scope+":m", scope+":w", scope+":p", scope+":r")
}

// appendAcquire appends the ARGV of an acquire, after the operation.
func appendAcquire(args []any, q lease.Request) []any {
	args = append(args, q.ID, q.Patience, q.Waiters, q.Priority, q.Longest, q.Lease, q.Channel, q.Metadata)
	for _, l := range q.Levels {
		args = append(args, l.Node, l.Weight, l.Limit)
	}
	return args
}

func (r *redisLeases) acquire(ctx context.Context, scope string, q lease.Request) (lease.Grant, error) {
	n, err := integers(r.run(ctx, scope, "acquire", appendAcquire(nil, q)...))
	if err != nil {
		return lease.Grant{}, err
	}
	return granted(n, q)
}

// granted reads the reply to an acquire.
func granted(n []int64, q lease.Request) (lease.Grant, error) {
	if len(n) != 6+len(q.Levels) {
		return lease.Grant{}, errReply
	}
	return lease.Grant{Status: lease.Status(n[0]), Token: n[1], Position: n[2], Next: n[3], Hold: n[4], Left: n[5], Used: n[6:]}, nil
}

func (r *redisLeases) each(ctx context.Context, scope, operation string, args []any, ids []string) ([]int64, error) {
	for _, id := range ids {
		args = append(args, id)
	}
	n, err := integers(r.run(ctx, scope, operation, args...))
	if err == nil && len(n) != len(ids) {
		err = errReply
	}
	return n, err
}

func (r *redisLeases) renew(ctx context.Context, scope string, micros int64, ids []string) ([]int64, error) {
	return r.each(ctx, scope, "renew", []any{micros}, ids)
}

func (r *redisLeases) release(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return r.each(ctx, scope, "release", nil, ids)
}

func (r *redisLeases) force(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return r.each(ctx, scope, "force", nil, ids)
}

func (r *redisLeases) list(ctx context.Context, scope string) (now int64, entries []lease.Entry, err error) {
	reply, err := r.run(ctx, scope, "list")
	if err != nil {
		return 0, nil, err
	}
	if len(reply)%3 != 1 {
		return 0, nil, errReply
	}
	var ok [4]bool
	now, ok[0] = reply[0].(int64)
	for reply = reply[1:]; len(reply) > 0; reply = reply[3:] {
		var e lease.Entry
		e.ID, ok[1] = reply[0].(string)
		e.Left, ok[2] = reply[1].(int64)
		e.Record, ok[3] = reply[2].(string)
		if ok != [4]bool{true, true, true, true} {
			return 0, nil, errReply
		}
		entries = append(entries, e)
	}
	return now, entries, nil
}

// memoryLeases keeps leases in this process. Its methods do not fail.
type memoryLeases struct {
	clock func() int64
	tell  func(channel, message string)

	mu     sync.Mutex
	scopes map[string]*lease.Scope
}

func newMemoryLeases(clock func() int64, tell func(channel, message string)) *memoryLeases {
	return &memoryLeases{clock: clock, tell: tell, scopes: make(map[string]*lease.Scope)}
}

func (m *memoryLeases) in(scope string, f func(s *lease.Scope, now int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.scopes[scope]
	if s == nil {
		s = &lease.Scope{Tell: m.tell}
		m.scopes[scope] = s
	}
	f(s, m.clock())
	if s.Idle() {
		delete(m.scopes, scope)
	}
}

func (m *memoryLeases) acquire(_ context.Context, scope string, q lease.Request) (g lease.Grant, _ error) {
	m.in(scope, func(s *lease.Scope, now int64) { g = s.Acquire(now, q) })
	return g, nil
}

func (m *memoryLeases) renew(_ context.Context, scope string, micros int64, ids []string) (left []int64, _ error) {
	m.in(scope, func(s *lease.Scope, now int64) { left = s.Renew(now, micros, ids) })
	return left, nil
}

func (m *memoryLeases) release(_ context.Context, scope string, ids []string) (was []int64, _ error) {
	m.in(scope, func(s *lease.Scope, now int64) { was = s.Release(now, ids) })
	return was, nil
}

func (m *memoryLeases) force(_ context.Context, scope string, ids []string) (was []int64, _ error) {
	m.in(scope, func(s *lease.Scope, now int64) { was = s.Force(now, ids) })
	return was, nil
}

func (m *memoryLeases) list(_ context.Context, scope string) (now int64, all []lease.Entry, _ error) {
	m.in(scope, func(s *lease.Scope, at int64) { now, all = s.List(at) })
	return now, all, nil
}
