package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// Leases is a request.LeaseStore on Redis. Each method ends when its context does. It is safe for
// concurrent use.
type Leases struct{ store *Store }

var _ request.LeaseStore = (*Leases)(nil)

// NewLeases returns a store of leases beside a Store.
func NewLeases(s *Store) *Leases { return &Leases{s} }

func (l *Leases) run(ctx context.Context, scope, operation string, args ...any) ([]any, error) {
	var reply []any // a call that is left behind writes it at any time
	if err := l.store.bounded(ctx, func() (err error) {
		reply, err = l.send(ctx, "evalsha", l.store.leases.sha, scope, operation, args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			l.store.missing.Add(1)
			reply, err = l.send(ctx, "eval", l.store.leases.source, scope, operation, args)
		}
		return err
	}); err != nil {
		return nil, err
	}
	return reply, nil
}

func (l *Leases) send(
	ctx context.Context,
	command, script, scope, operation string,
	args []any,
) ([]any, error) {
	all := make([]any, 0, 10+len(args))
	all = appendLeaseKeys(append(all, command, script, 5), scope)
	all = append(append(all, operation), args...)
	if l.store.clock != nil {
		all = append(all, l.store.clock())
	}
	cmd := redis.NewCmd(ctx, all...)
	cmd.SetFirstKeyPos(3)
	_ = l.store.Client.Process(ctx, onceAny{cmd}) // the command keeps its error
	return cmd.Slice()
}

// Acquire implements request.LeaseStore.
func (l *Leases) Acquire(ctx context.Context, scope string, q lease.Request) (lease.Grant, error) {
	reply, err := l.run(ctx, scope, "acquire", appendAcquire(nil, q)...)
	if err != nil {
		return lease.Grant{}, err
	}
	n, err := integers(reply)
	if err != nil {
		return lease.Grant{}, err
	}
	return decodeGrant(n, len(q.Levels))
}

// each runs an operation that answers one integer for each id.
func (l *Leases) each(
	ctx context.Context,
	scope, operation string,
	args []any,
	ids []string,
) ([]int64, error) {
	for _, id := range ids {
		args = append(args, id)
	}
	reply, err := l.run(ctx, scope, operation, args...)
	if err != nil {
		return nil, err
	}
	n, err := integers(reply)
	if err == nil && len(n) != len(ids) {
		err = ErrReply
	}
	return n, err
}

// Renew implements request.LeaseStore.
func (l *Leases) Renew(
	ctx context.Context,
	scope string,
	micros int64,
	ids []string,
) ([]int64, error) {
	return l.each(ctx, scope, "renew", []any{micros}, ids)
}

// Release implements request.LeaseStore.
func (l *Leases) Release(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return l.each(ctx, scope, "release", nil, ids)
}

// Evict implements request.LeaseStore.
func (l *Leases) Evict(ctx context.Context, scope string, ids []string) ([]int64, error) {
	return l.each(ctx, scope, "force", nil, ids)
}

// List implements request.LeaseStore.
func (l *Leases) List(
	ctx context.Context,
	scope string,
) (now int64, entries []lease.Entry, err error) {
	reply, err := l.run(ctx, scope, "list")
	if err != nil {
		return 0, nil, err
	}
	return decodeEntries(reply)
}

func decodeSlot(s *request.Slot, reply []int64) error {
	grant, err := decodeGrant(reply, len(s.Request.Levels))
	s.Grant, s.Answered = grant, err == nil
	return err
}

// decodeGrant reads the reply to an acquire of that many levels.
func decodeGrant(n []int64, levels int) (lease.Grant, error) {
	if len(n) != 6+levels {
		return lease.Grant{}, ErrReply
	}
	return lease.Grant{
		Status: lease.Status(
			n[0],
		), Token: n[1], Position: n[2], Next: n[3], Hold: n[4], Left: n[5], Used: n[6:],
	}, nil
}

// integers returns the integers of a reply.
func integers(reply []any) ([]int64, error) {
	all := make([]int64, len(reply))
	for i, r := range reply {
		n, ok := r.(int64)
		if !ok {
			return nil, ErrReply
		}
		all[i] = n
	}
	return all, nil
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
