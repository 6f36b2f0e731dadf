package redisstore

import (
	"sync"

	"github.com/headgate/headgate/internal/redisstore/trips"
)

// leaseBatch is operations on leases in one script.
type leaseBatch struct {
	schema *schema
	script *trips.Script
	calls  []*operation
	arguments
}

var leaseBatches = sync.Pool{New: func() any { return new(leaseBatch) }}

// Batch implements trips.Parcel.
func (o *operation) Batch() trips.Batch {
	b := leaseBatches.Get().(*leaseBatch)
	b.schema, b.script = o.schema, o.script
	return b
}

// Add implements trips.Batch. The weights of the calls bound KEYS and ARGV to some 1,100: those of
// four operations on 256 ids.
func (b *leaseBatch) Add(p trips.Parcel) bool {
	b.calls = append(b.calls, p.(*operation))
	return true
}

// Command implements trips.Batch.
func (b *leaseBatch) Command() trips.Command {
	keys, argv := scopeKeys, scopeKeys
	if b.isLone() {
		keys, argv = 1, 1
	} else if len(b.calls) == 1 {
		argv++ // without the number of ARGV
	}
	b.int(int64(keys * len(b.calls)))
	for _, k := range b.calls {
		b.words = append(b.words, k.words[:keys]...)
	}
	for _, k := range b.calls {
		b.words = append(b.words, k.words[argv:]...)
	}
	command := b.command(b.schema, b.script)
	command.Number = b.isLone()
	return command
}

// isLone reports whether the operations are those of lone holders.
func (b *leaseBatch) isLone() bool { return b.script != b.schema.lease }

// Deliver implements trips.Batch. A call that failed goes again alone, to learn why.
func (b *leaseBatch) Deliver(r trips.Reply) error {
	reply := r.Numbers
	if b.isLone() {
		return b.deliverLone(reply)
	}
	if len(b.calls) == 1 && len(reply) > 0 {
		b.calls[0].reply = reply
		return nil
	}
	for _, k := range b.calls {
		if len(reply) == 0 || reply[0] == 0 || reply[0] > int64(len(reply)-1) {
			return trips.ErrReply
		}
		n := reply[0]
		reply = reply[1:]
		if n < 0 {
			k.Split()
			continue
		}
		k.reply, reply = reply[:n:n], reply[n:]
	}
	if len(reply) > 0 {
		return trips.ErrReply
	}
	return nil
}

// deliverLone gives each call its part of the reply: one number.
func (b *leaseBatch) deliverLone(reply []int64) error {
	if len(reply) != len(b.calls) {
		return trips.ErrReply
	}
	for i, k := range b.calls {
		k.reply = reply[i : i+1]
	}
	return nil
}

// Release implements trips.Batch.
func (b *leaseBatch) Release() {
	clear(b.calls)
	b.calls = b.calls[:0]
	b.clear()
	leaseBatches.Put(b)
}
