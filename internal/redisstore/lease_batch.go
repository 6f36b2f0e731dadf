package redisstore

import (
	"slices"
	"sync"
)

// leaseBatch is operations on leases in one script.
type leaseBatch struct {
	calls []*call
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
			return !s.Cluster || k.outermost == first.outermost
		})
		b.encode(s)
		t.commands = append(t.commands, command{script: &s.leases, parcel: b, args: b.args})
	}
}

func (b *leaseBatch) encode(s *Store) {
	b.ints = slices.Grow(b.ints, 1)
	b.args = append(b.args, "evalsha", &s.leases.sha)
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
	b.args = s.clocked(b.args)
}

func (b *leaseBatch) members() []*call { return b.calls }

// distribute gives each call its part of the reply. One that failed goes again alone, to learn why.
func (b *leaseBatch) distribute(reply []int64) error {
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

func (b *leaseBatch) release() {
	clear(b.calls)
	b.calls = b.calls[:0]
	b.clear(0)
	leaseBatches.Put(b)
}
