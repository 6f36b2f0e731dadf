package redisstore

import "github.com/headgate/headgate/internal/redisstore/trips"

// Deliver implements trips.Batch. A call gets the whole reply if nothing ran or if no other call has a
// part of it.
func (b *batch) Deliver(r trips.Reply) error {
	reply := r.Numbers
	if first := b.calls[0]; len(b.calls) == 1 && first.isReply(reply) {
		first.reply = reply
		return nil
	}
	switch _, passed := periodPassed(reply); {
	case passed:
		for _, k := range b.calls {
			k.reply = reply
		}
		return nil
	case len(b.calls) == 1:
		return trips.ErrReply
	}
	return b.share(reply)
}

// share gives each call its part of the reply.
func (b *batch) share(reply []int64) error {
	n := 0
	for i := range b.entries {
		e := &b.entries[i]
		if e.at = n; e.brief > 0 && n+e.brief <= len(reply) && isBrief(reply[n:n+e.brief]) {
			e.words = e.brief
		}
		n += e.words
	}
	if n != len(reply) {
		return trips.ErrReply
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
		if e.brief > 0 {
			words = e.words
		}
		k.reply = reply[e.at : e.at+words : e.at+words]
	}
	return nil
}
