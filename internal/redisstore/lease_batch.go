package redisstore

import (
	"slices"
	"sync"
)

// leaseBatch is operations on leases in one script.
type leaseBatch struct {
	calls []*call
	short bool // in the short form, acquires first
	arguments
}

var leaseBatches = sync.Pool{New: func() any { return new(leaseBatch) }}

// packLeases writes the commands of operations on leases. On a cluster those of one hash slot share
// a script.
func (s *Store) packLeases(t *trip, calls []*call) {
	for len(calls) > 0 {
		first := calls[0]
		b := leaseBatches.Get().(*leaseBatch)
		b.calls, calls = shareWithFirst(b.calls, calls, func(k *call) bool {
			return k.script == first.script && (!s.Cluster || k.outermost == first.outermost)
		})
		b.ints = slices.Grow(b.ints, 2)
		b.args = append(b.args, "evalsha", &first.script.sha)
		if b.short = first.script == &s.slots; b.short {
			b.encodeShort()
		} else {
			b.encode()
		}
		b.args = s.clocked(b.args)
		t.commands = append(t.commands, command{script: first.script, parcel: b, args: b.args})
	}
}

// encode writes KEYS and ARGV as lua/lease/batch.lua reads them.
func (b *leaseBatch) encode() {
	b.int(int64(scopeKeys * len(b.calls)))
	for _, k := range b.calls {
		b.args = append(b.args, k.args[:scopeKeys]...)
	}
	for _, k := range b.calls {
		argv := k.args[scopeKeys:]
		if len(b.calls) == 1 {
			argv = argv[1:] // without their number
		}
		b.args = append(b.args, argv...)
	}
}

// encodeShort writes KEYS and ARGV as lua/lease/short.lua reads them.
func (b *leaseBatch) encodeShort() {
	slices.SortStableFunc(b.calls, func(k, o *call) int { return len(k.releases) - len(o.releases) })
	b.int(int64(len(b.calls)))
	for _, k := range b.calls {
		b.args = append(b.args, k.args[0])
	}
	acquires := b.next()
	for _, k := range b.calls {
		if k.releases == nil {
			*acquires++
		}
		b.args = append(b.args, k.args[1:]...)
	}
}

func (b *leaseBatch) members() []*call { return b.calls }

// distribute gives each call its part of the reply. One that failed goes again alone, to learn why.
func (b *leaseBatch) distribute(reply []int64) error {
	if b.short {
		return b.distributeShort(reply)
	}
	if len(b.calls) == 1 {
		b.calls[0].reply = reply
		return nil
	}
	for _, k := range b.calls {
		if len(reply) == 0 || reply[0] > int64(len(reply)-1) {
			return ErrReply
		}
		n := reply[0]
		reply = reply[1:]
		if n < 0 {
			k.err = errSplit{errFailed}
			continue
		}
		k.reply, reply = reply[:n:n], reply[n:]
	}
	if len(reply) > 0 {
		return ErrReply
	}
	return nil
}

// distributeShort gives each call its part of the reply: the token of its slot, 1 for a release, or 0.
func (b *leaseBatch) distributeShort(reply []int64) error {
	if len(reply) != 1+len(b.calls) {
		return ErrReply
	}
	for i, k := range b.calls {
		if k.reply = reply[1+i : 2+i]; k.releases == nil && reply[1+i] != 0 {
			k.reply = reply[:1]
		}
	}
	return nil
}

func (b *leaseBatch) release() {
	clear(b.calls)
	b.calls = b.calls[:0]
	b.clear(0)
	leaseBatches.Put(b)
}
