package redisstore

import (
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

func (s *Store) decodeSlot(slot *request.Slot, reply []int64) (err error) {
	slot.Grant, err = s.decodeGrant(slot.Scope, &slot.Request, reply)
	slot.Answered = err == nil
	return err
}

// decodeGrant reads the reply to an acquire in a scope. If others hold slots there, it notes that.
func (s *Store) decodeGrant(scope string, q *lease.Request, n []int64) (lease.Grant, error) {
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
		return lease.Grant{}, trips.ErrReply
	}
	s.declines.note(hashOf(scope), true)
	return lease.Grant{
		Status: lease.Status(n[0]), Token: n[1], Position: n[2], Next: n[3],
		Hold: n[4], Left: n[5], Used: n[6:],
	}, nil
}

// decodeEntries reads the reply to a list: the time, then three values for each entry.
func decodeEntries(reply []any) (now int64, entries []lease.Entry, err error) {
	if len(reply)%3 != 1 {
		return 0, nil, trips.ErrReply
	}
	var ok [4]bool
	now, ok[0] = reply[0].(int64)
	for reply = reply[1:]; len(reply) > 0; reply = reply[3:] {
		var e lease.Entry
		e.ID, ok[1] = reply[0].(string)
		e.Left, ok[2] = reply[1].(int64)
		e.Record, ok[3] = reply[2].(string)
		if ok != [4]bool{true, true, true, true} {
			return 0, nil, trips.ErrReply
		}
		entries = append(entries, e)
	}
	return now, entries, nil
}
