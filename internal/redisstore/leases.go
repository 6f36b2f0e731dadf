package redisstore

import (
	"context"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

// Leases is a request.LeaseStore on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Leases struct{ store *Store }

var _ request.LeaseStore = (*Leases)(nil)

// NewLeases returns the leases of a Store.
func NewLeases(s *Store) *Leases { return &Leases{s} }

// asksLone reports whether the script for lone holders is asked first: no earlier operation has found
// another caller in the scope, and the server was quick to answer last. Where there is another caller,
// it costs a round trip.
func (l *Leases) asksLone(ctx context.Context, scope string) bool {
	s := l.store
	return !s.declines.has(hashOf(scope)) && s.Servers.IsQuick(ctx, s.outermost(scope))
}

// run sends an operation. If the server is silent, it waits until the deadline of ctx, or for
// Config.Timeout.
func (l *Leases) run(ctx context.Context, k *trips.Call) error {
	l.bound(ctx, k)
	return l.store.Servers.Do(ctx, k)
}

func (l *Leases) bound(ctx context.Context, k *trips.Call) {
	most := l.store.Timeout
	if _, ok := deadline.Untimed(ctx); ok {
		most = l.store.Servers.Patience()
	}
	k.Bound(ctx, most)
}

// Acquire implements request.LeaseStore.
func (l *Leases) Acquire(ctx context.Context, scope string, q lease.Request) (grant lease.Grant, err error) {
	k := l.store.newOperation()
	defer k.release()
	k.Acquires = q.ID
	// A name may have an earlier holder, which the script for lone holders does not replace.
	taken := lease.Name(q.ID) == "" && l.asksLone(ctx, scope)
	if taken {
		k.take(scope, &q)
		err = l.run(ctx, &k.Call)
		taken = err != nil || k.reply[0] != 0
	}
	if !taken {
		k.operate(scope, "acquire", acquireWords, leaseWeight*len(q.Levels))
		k.acquire(&q)
		err = l.run(ctx, &k.Call)
	}
	if err == nil {
		grant, err = l.store.decodeGrant(scope, &q, k.reply)
	}
	return grant, l.store.outcome(ctx, err)
}

// answer returns one integer for each id, or the error of an operation.
func (l *Leases) answer(ctx context.Context, k *operation, ids []string, err error) ([]int64, error) {
	if err == nil && len(k.reply) != len(ids) {
		err = trips.ErrReply
	}
	if err = l.store.outcome(ctx, err); err != nil {
		return nil, err
	}
	return k.reply, nil
}

// Renew implements request.LeaseStore.
func (l *Leases) Renew(
	ctx context.Context,
	scope string,
	micros int64,
	ids []string,
) ([]int64, error) {
	k := l.renewal(scope, micros, ids)
	defer k.release()
	return l.answer(ctx, k, ids, l.run(ctx, &k.Call))
}

// RenewAll implements request.LeaseStore.
func (l *Leases) RenewAll(ctx context.Context, all []*request.Renewal, again bool) {
	operations, calls := make([]*operation, len(all)), make([]*trips.Call, len(all))
	for i, r := range all {
		operations[i] = l.renewal(r.Scope, r.Micros, r.IDs)
		calls[i] = &operations[i].Call
		l.bound(ctx, calls[i])
	}
	for i, err := range l.store.Servers.DoAll(ctx, calls, again) {
		r, k := all[i], operations[i]
		r.Left, r.Err = l.answer(ctx, k, r.IDs, err)
		k.release()
	}
}

// renewal returns the operation that renews leases.
func (l *Leases) renewal(scope string, micros int64, ids []string) *operation {
	k := l.store.newOperation()
	k.Insists = true
	k.operate(scope, "renew", 1+len(ids), weightOf(ids))
	k.int(micros)
	k.names(ids)
	return k
}

// Release implements request.LeaseStore.
func (l *Leases) Release(ctx context.Context, scope string, ids []string) error {
	k := l.store.newOperation()
	defer k.release()
	k.Insists, k.Releases = true, ids
	if len(ids) == 1 && l.asksLone(ctx, scope) {
		k.leave(scope, ids[0])
		if err := l.run(ctx, &k.Call); err != nil || k.reply[0] == 1 {
			return l.store.outcome(ctx, err)
		}
	}
	k.operate(scope, "release", len(ids), weightOf(ids))
	k.names(ids)
	err := l.run(ctx, &k.Call)
	if err == nil {
		l.store.declines.note(hashOf(scope), k.reply[0] == 0)
	}
	return l.store.outcome(ctx, err)
}

// Evict implements request.LeaseStore.
func (l *Leases) Evict(ctx context.Context, scope string, ids []string) ([]int64, error) {
	k := l.store.newOperation()
	defer k.release()
	k.Insists = true
	k.operate(scope, "force", len(ids), weightOf(ids))
	k.names(ids)
	return l.answer(ctx, k, ids, l.run(ctx, &k.Call))
}

// List implements request.LeaseStore.
func (l *Leases) List(
	ctx context.Context,
	scope string,
) (now int64, entries []lease.Entry, err error) {
	s := l.store
	k := s.newSingle(s.lease, s.outermost(scope))
	k.texts = true
	k.int(scopeKeys)
	k.leaseKeys(scope)
	k.name("list")
	if err = l.run(ctx, &k.Call); err == nil {
		now, entries, err = decodeEntries(k.reply.Values)
	}
	return now, entries, l.store.outcome(ctx, err)
}
