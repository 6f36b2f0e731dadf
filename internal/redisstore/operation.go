package redisstore

import (
	"sync"

	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/request"
)

const (
	// leaseWeight is the weight of an operation on leases. It takes the server 5 µs at a key that
	// nobody else uses, 15 µs beside other holders, and 30 µs in a queue.
	leaseWeight = 10
	// loneWeight is the weight of an acquire or a release of a lone holder, which takes the server 2 µs.
	loneWeight = 4
)

// weightOf returns the weight of an operation on ids.
func weightOf(ids []string) int { return leaseWeight + 2*(len(ids)-1) }

// operation is a call that carries one operation on the leases of a scope: its KEYS, the number of
// its ARGV and these. At a lone holder it has one key, and the number is left out.
type operation struct {
	trips.Call
	store     *Store
	arguments // without the head of the command

	reply []int64
}

func (s *Store) newOperation() *operation {
	o := s.operations.Get().(*operation)
	o.Lane = trips.Operations
	return o
}

// release lets the operation be used again.
func (o *operation) release() {
	if o.Reset() {
		o.clear()
		o.reply = nil
		o.store.operations.Put(o)
	}
}

// operate makes the call one of an operation with n arguments. It writes the KEYS of the operation,
// the number of its ARGV, and the first of these.
func (o *operation) operate(scope, name string, n, weight int) {
	o.script, o.Outermost = o.store.lease, o.store.outermost(scope)
	o.Weight = min(weight, trips.MaxOperationWeight)
	o.clear()
	o.leaseKeys(scope)
	o.int(int64(1 + n))
	o.name(name)
}

// take makes the call one of lua/lease/takes.lua.
func (o *operation) take(scope string, q *lease.Request) {
	o.operateLone(o.store.take, scope)
	o.int(q.Lease/1000 + loneMargin)
	o.name(q.Lone())
}

// leave makes the call one of lua/lease/leaves.lua.
func (o *operation) leave(scope, id string) {
	o.operateLone(o.store.leave, scope)
	o.name(" " + id + " ")
}

// operateLone makes the new call one of a script for lone holders. It writes the one key.
func (o *operation) operateLone(s *trips.Script, scope string) {
	o.script, o.Outermost = s, o.store.outermost(scope)
	o.Weight = loneWeight
	o.name(scope + recordsSuffix)
}

// outermost returns the outermost part that a scope is below.
func (s *Store) outermost(scope string) string { return request.Outermost(s.Prefix, scope) }

// Joins implements trips.Parcel.
func (o *operation) Joins(p trips.Parcel) bool {
	other, ok := p.(*operation)
	return ok && o.script == other.script
}

// leaseBatch is operations on leases in one script.
type leaseBatch struct {
	store *Store
	lone  bool // the script is one for lone holders
	calls []*operation
	arguments
}

var leaseBatches = sync.Pool{New: func() any { return new(leaseBatch) }}

// Batch implements trips.Parcel.
func (o *operation) Batch() trips.Batch {
	b := leaseBatches.Get().(*leaseBatch)
	b.store, b.lone = o.store, o.script != o.store.lease
	b.begin(o.script)
	return b
}

// Add implements trips.Batch. The weights of the calls bound KEYS and ARGV to some 1,100: those of
// four operations on 256 ids.
func (b *leaseBatch) Add(p trips.Parcel) { b.calls = append(b.calls, p.(*operation)) }

// Command implements trips.Batch.
func (b *leaseBatch) Command() trips.Command {
	keys, argv := scopeKeys, scopeKeys
	switch {
	case b.lone:
		keys, argv = 1, 1
	case len(b.calls) == 1:
		argv++ // without the number of ARGV
	}
	b.int(int64(keys * len(b.calls)))
	for _, k := range b.calls {
		b.words = append(b.words, k.words[:keys]...)
	}
	for _, k := range b.calls {
		b.words = append(b.words, k.words[argv:]...)
	}
	command := b.command(b.store)
	command.Number = b.lone
	return command
}

// Deliver implements trips.Batch. It gives each call its part of the reply: one number for a lone
// holder, all numbers if no other call has a part, and otherwise as many as are announced. A call that
// failed goes again alone, to learn why.
func (b *leaseBatch) Deliver(r trips.Reply) error {
	reply := r.Numbers
	for _, k := range b.calls {
		n := int64(1)
		switch {
		case b.lone:
		case len(b.calls) == 1:
			n = int64(len(reply))
		case len(reply) > 0:
			n, reply = reply[0], reply[1:]
		}
		if n < 0 {
			k.Split()
			continue
		}
		if n == 0 || n > int64(len(reply)) {
			return trips.ErrReply
		}
		k.reply, reply = reply[:n:n], reply[n:]
	}
	if len(reply) > 0 {
		return trips.ErrReply
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
