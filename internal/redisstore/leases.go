package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// Leases is a request.LeaseStore on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Leases struct{ store *Store }

var _ request.LeaseStore = (*Leases)(nil)

// NewLeases returns a store of leases beside a Store.
func NewLeases(s *Store) *Leases { return &Leases{s} }

// begin makes k the call of an operation with n arguments. It writes the KEYS of the operation, the
// number of its ARGV, and the first of these.
func (l *Leases) begin(k *call, scope, operation string, n, weight int) {
	l.address(k, &l.store.leases, scope)
	k.weight = min(weight, maxBatchWeight/4) // what take spares for leases
	k.clear(scopeKeys + 2 + n)
	k.leaseKeys(scope)
	k.int(int64(1 + n))
	k.name(operation)
}

// beginShort makes k the call of an operation in its short form. It writes the one key.
func (l *Leases) beginShort(k *call, scope string) {
	l.address(k, &l.store.slots, scope)
	k.weight = shortWeight
	k.clear(3)
	k.args = append(k.args, scope+recordsSuffix)
}

// address makes k a call of a script on a scope, also if it was one of another before.
func (l *Leases) address(k *call, c *script, scope string) {
	k.script, k.outermost, k.alone = c, l.outermost(scope), false
}

func (l *Leases) outermost(scope string) string {
	return scope[len(l.store.Prefix) : strings.IndexByte(scope, '}')+1]
}

// weightOf returns the weight of an operation on ids.
func weightOf(ids []string) int { return leaseWeight + 2*(len(ids)-1) }

// takesShort reports whether to ask in the short form first: where nobody else was found before, and
// only if the server was quick to answer last, because beside others it costs a round trip. A cluster
// that is not known yet is not.
func (l *Leases) takesShort(ctx context.Context, scope string) bool {
	s := l.store
	_, cluster := s.Client.(*redis.ClusterClient)
	if s.crowds.has(scope) || cluster && !s.routed.Load() {
		return false
	}
	q := s.nodeOf(ctx, l.outermost(scope)).queue
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.quick
}

// run sends an operation. If the server is silent, it waits until the deadline of ctx, or for
// Config.Timeout; otherwise it waits for its turn as long as a round trip may take, because a slot is
// worth the wait.
func (l *Leases) run(ctx context.Context, k *call) error {
	s, now := l.store, time.Now()
	k.turn, k.end = now.Add(s.patience), now.Add(s.Timeout)
	if at, ok := deadline.Untimed(ctx); ok {
		k.end = at
		if k.turn.Before(at) {
			k.end = k.turn
		}
	}
	return s.ask(ctx, k)
}

// Acquire implements request.LeaseStore.
func (l *Leases) Acquire(ctx context.Context, scope string, q lease.Request) (lease.Grant, error) {
	grant, err := l.acquire(ctx, scope, &q)
	return grant, l.store.outcome(ctx, err)
}

func (l *Leases) acquire(ctx context.Context, scope string, q *lease.Request) (lease.Grant, error) {
	k := l.store.newCall()
	defer l.store.release(k)
	k.acquires = q.ID
	decided := false
	if l.takesShort(ctx, scope) {
		l.beginShort(k, scope)
		k.int(q.Lease/1000 + loneMargin)
		k.name(q.Lone())
		if err := l.run(ctx, k); err != nil {
			return lease.Grant{}, err
		}
		decided = k.reply[0] != 0
	}
	if !decided {
		l.begin(k, scope, "acquire", acquireWords, leaseWeight*len(q.Levels))
		k.acquire(q)
		if err := l.run(ctx, k); err != nil {
			return lease.Grant{}, err
		}
	}
	grant, err := decodeGrant(k.reply, q)
	if err == nil && !grant.Lone {
		l.store.crowds.note(scope, true)
	}
	return grant, err
}

// each runs an operation that answers one integer for each id.
func (l *Leases) each(ctx context.Context, k *call, ids []string) ([]int64, error) {
	for _, id := range ids {
		k.name(id)
	}
	err := l.run(ctx, k)
	if err == nil && len(k.reply) != len(ids) {
		err = ErrReply
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
	k := l.store.newCall()
	defer l.store.release(k)
	k.insists = true
	l.begin(k, scope, "renew", 1+len(ids), weightOf(ids))
	k.int(micros)
	return l.each(ctx, k, ids)
}

// Release implements request.LeaseStore.
func (l *Leases) Release(ctx context.Context, scope string, ids []string) ([]int64, error) {
	k := l.store.newCall()
	defer l.store.release(k)
	k.insists, k.releases = true, ids
	if len(ids) == 1 && l.takesShort(ctx, scope) {
		l.beginShort(k, scope)
		if own, err := l.each(ctx, k, ids); err != nil || own[0] != 0 {
			return own, err
		}
		l.store.crowds.note(scope, true)
	}
	l.begin(k, scope, "release", len(ids), weightOf(ids))
	own, err := l.each(ctx, k, ids)
	if err == nil && len(own) == 1 && own[0] == releasedLone {
		own[0] = 1
		l.store.crowds.note(scope, false)
	}
	return own, err
}

// releasedLone is the reply to the release of an id that nobody came to.
const releasedLone = 3

// Evict implements request.LeaseStore.
func (l *Leases) Evict(ctx context.Context, scope string, ids []string) ([]int64, error) {
	k := l.store.newCall()
	defer l.store.release(k)
	k.insists = true
	l.begin(k, scope, "force", len(ids), weightOf(ids))
	return l.each(ctx, k, ids)
}

// List implements request.LeaseStore.
func (l *Leases) List(
	ctx context.Context,
	scope string,
) (now int64, entries []lease.Entry, err error) {
	k := l.store.newCall()
	defer l.store.release(k)
	k.mixed = true
	l.begin(k, scope, "list", 0, leaseWeight)
	own := append([]any{"evalsha", &k.script.sha, scopeKeys}, k.args[:scopeKeys]...)
	k.args = l.store.clocked(append(own, k.args[scopeKeys+1:]...))
	if err = l.run(ctx, k); err == nil {
		now, entries, err = decodeEntries(k.values)
	}
	return now, entries, l.store.outcome(ctx, err)
}

func decodeSlot(s *request.Slot, reply []int64) error {
	grant, err := decodeGrant(reply, &s.Request)
	s.Grant, s.Answered = grant, err == nil
	return err
}

// decodeGrant reads the reply to an acquire.
func decodeGrant(n []int64, q *lease.Request) (lease.Grant, error) {
	if len(n) == 1 { // the token of a lone holder
		used := make([]int64, len(q.Levels))
		for i, l := range q.Levels {
			used[i] = l.Weight
		}
		return lease.Grant{
			Status: lease.Held, Token: n[0], Next: -1, Left: q.Lease, Used: used, Lone: true,
		}, nil
	}
	if len(n) != 6+len(q.Levels) {
		return lease.Grant{}, ErrReply
	}
	return lease.Grant{
		Status: lease.Status(n[0]), Token: n[1], Position: n[2], Next: n[3],
		Hold: n[4], Left: n[5], Used: n[6:],
	}, nil
}

// decodeEntries reads the reply to a list: the time, then three values for each entry.
func decodeEntries(reply []any) (now int64, entries []lease.Entry, err error) {
	if len(reply)%3 != 1 {
		return 0, nil, ErrReply
	}
	var ok [4]bool
	now, ok[0] = reply[0].(int64)
	for reply = reply[1:]; len(reply) > 0; reply = reply[3:] {
		var e lease.Entry
		e.ID, ok[1] = reply[0].(string)
		e.Left, ok[2] = reply[1].(int64)
		e.Record, ok[3] = reply[2].(string)
		if ok != [4]bool{true, true, true, true} {
			return 0, nil, ErrReply
		}
		entries = append(entries, e)
	}
	return now, entries, nil
}
