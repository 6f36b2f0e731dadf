package redisstore

import (
	"errors"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/request"
)

// periodPassed reports whether nothing ran because the limits of a batch do not hold at the server's time, which it
// returns.
func periodPassed(reply []int64) (now int64, passed bool) {
	if len(reply) == 2 && reply[0] == -1 {
		return reply[1], true
	}
	return 0, false
}

// A brief reply is one number: 2 + the level that was found if the charge was spent, and otherwise -2 - the level.
// Neither is a verdict on one charge, nor the -1 of a period that has passed.
func isBrief(n int64) bool { return n < -1 || n > 1 }

// unfold appends the reply that a brief one stands for.
func unfold(reply []int64, n int64) []int64 {
	if n < 0 {
		return append(reply, 1, -2-n, 0, 0)
	}
	return append(reply, 0, n-2, 0, 1)
}

// distribute gives each call its part of the script's reply, or all of it if nothing ran.
func (b *batch) distribute(reply []int64) error {
	if _, passed := periodPassed(reply); passed {
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	}
	n := 0
	for i := range b.entries {
		e := &b.entries[i]
		if e.at = n; e.brief && n < len(reply) && isBrief(reply[n]) {
			e.words = 1
		}
		n += e.words
	}
	if n != len(reply) {
		return ErrReply
	}
	for i, k := range b.calls {
		e := &b.entries[b.entryOf[i]]
		if e.callers > 1 {
			if e.replies == nil {
				e.replies = make([]int64, e.callers*e.words)
			}
			k.reply, e.replies = e.replies[:e.words:e.words], e.replies[e.words:]
			e.merged.reply(k.reply, reply[e.at:e.at+e.words], int64(e.told))
			e.told++
			continue
		}
		words := k.words
		if e.brief {
			words = e.words
		}
		k.reply = reply[e.at : e.at+words : e.at+words]
	}
	return nil
}

// decode hands a reply to the call's requests.
func (k *call) decode(reply []int64) error {
	if k.brief() && len(reply) == 1 && isBrief(reply[0]) {
		r := &k.requests[0]
		r.Buffer = unfold(r.Buffer[:0], reply[0])
		reply = r.Buffer
	}
	for i := range k.requests {
		r := &k.requests[i]
		n := r.Words()
		if len(reply) < n {
			return ErrReply
		}
		r.Settle(reply[:n:n])
		reply = reply[n:]
	}
	if s := k.requests[0].Slot; s != nil && len(reply) > 0 {
		return decodeSlot(s, reply)
	}
	if len(reply) > 0 {
		return ErrReply
	}
	return nil
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
		Status: lease.Status(n[0]), Token: n[1], Position: n[2], Next: n[3], Hold: n[4], Left: n[5], Used: n[6:],
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

// ErrReply is a reply that breaks the script's contract.
var ErrReply = errors.New("redisstore: the script's reply has a wrong shape")
