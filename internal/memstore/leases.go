package memstore

import (
	"context"
	"sync"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// Leases is a request.LeaseStore in memory. Its methods do not fail. It is safe for concurrent use
// and must not be copied.
type Leases struct {
	clock func() int64 // microseconds
	tell  func(message string)

	mu     sync.Mutex
	scopes map[string]*lease.Scope
	token  int64 // the highest one of the scopes that are idle
}

// NewLeases returns a store on a clock of microseconds. It calls tell with each message to a waiter
// or a holder, under a lock: tell must not call the store.
func NewLeases(clock func() int64, tell func(message string)) *Leases {
	return &Leases{clock: clock, tell: tell, scopes: make(map[string]*lease.Scope)}
}

func (l *Leases) in(scope string, f func(s *lease.Scope, now int64)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.scopes[scope]
	if s == nil {
		s = lease.NewScope(l.token, func(_, message string) { l.tell(message) })
		l.scopes[scope] = s
	}
	f(s, l.clock())
	if s.Idle() {
		l.token = max(l.token, s.Token())
		delete(l.scopes, scope)
	}
}

// Acquire implements request.LeaseStore.
func (l *Leases) Acquire(
	_ context.Context,
	scope string,
	q lease.Request,
) (g lease.Grant, _ error) {
	l.in(scope, func(s *lease.Scope, now int64) { g = s.Acquire(now, q) })
	return g, nil
}

// Renew implements request.LeaseStore.
func (l *Leases) Renew(
	_ context.Context,
	scope string,
	micros int64,
	ids []string,
) (left []int64, _ error) {
	l.in(scope, func(s *lease.Scope, now int64) { left = s.Renew(now, micros, ids) })
	return left, nil
}

// RenewAll implements request.LeaseStore.
func (l *Leases) RenewAll(ctx context.Context, all []*request.Renewal, _ bool) {
	for _, r := range all {
		r.Left, r.Err = l.Renew(ctx, r.Scope, r.Micros, r.IDs)
	}
}

// Release implements request.LeaseStore.
func (l *Leases) Release(_ context.Context, scope string, ids []string) error {
	l.in(scope, func(s *lease.Scope, now int64) { s.Release(now, ids) })
	return nil
}

// Evict implements request.LeaseStore.
func (l *Leases) Evict(_ context.Context, scope string, ids []string) (was []int64, _ error) {
	l.in(scope, func(s *lease.Scope, now int64) { was = s.Force(now, ids) })
	return was, nil
}

// List implements request.LeaseStore.
func (l *Leases) List(_ context.Context, scope string) (now int64, entries []lease.Entry, _ error) {
	l.in(scope, func(s *lease.Scope, at int64) { now, entries = s.List(at) })
	return now, entries, nil
}
