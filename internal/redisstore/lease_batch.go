package redisstore

import (
	"slices"
	"sync"

	"github.com/headgate/headgate/internal/redisstore/trips"
)

// leaseBatch is operations on leases in one script.
type leaseBatch struct {
	schema *schema
	calls  []*operation
	short  bool // in the short form, acquires first
	arguments
}

var leaseBatches = sync.Pool{New: func() any { return new(leaseBatch) }}

// Batch implements trips.Parcel.
func (o *operation) Batch() trips.Batch {
	b := leaseBatches.Get().(*leaseBatch)
	b.schema, b.short = o.schema, o.short
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
	script := b.schema.lease
	if b.short {
		script = b.schema.slot
	}
	if b.short {
		b.encodeShort()
	} else {
		b.encode()
	}
	command := b.command(b.schema, script)
	command.Number = b.short
	return command
}

// encode writes KEYS and ARGV as lua/lease/batch.lua reads them.
func (b *leaseBatch) encode() {
	b.int(int64(scopeKeys * len(b.calls)))
	for _, k := range b.calls {
		b.words = append(b.words, k.words[:scopeKeys]...)
	}
	for _, k := range b.calls {
		argv := k.words[scopeKeys:]
		if len(b.calls) == 1 {
			argv = argv[1:] // without their number
		}
		b.words = append(b.words, argv...)
	}
}

// encodeShort writes KEYS and ARGV as lua/lease/short.lua reads them.
func (b *leaseBatch) encodeShort() {
	slices.SortStableFunc(b.calls, func(k, o *operation) int {
		return len(k.Releases) - len(o.Releases)
	})
	b.int(int64(len(b.calls)))
	for _, k := range b.calls {
		b.words = append(b.words, k.words[0])
	}
	for _, k := range b.calls {
		b.words = append(b.words, k.words[1:]...)
	}
}

// Deliver implements trips.Batch. A call that failed goes again alone, to learn why.
func (b *leaseBatch) Deliver(r trips.Reply) error {
	reply := r.Numbers
	if b.short {
		return b.deliverShort(reply)
	}
	if len(b.calls) == 1 {
		b.calls[0].reply = reply
		return nil
	}
	for _, k := range b.calls {
		if len(reply) == 0 || reply[0] > int64(len(reply)-1) {
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

// deliverShort gives each call its part of the reply: one number.
func (b *leaseBatch) deliverShort(reply []int64) error {
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
