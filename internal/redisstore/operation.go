package redisstore

import (
	"strings"

	"github.com/headgate/headgate/internal/redisstore/trips"
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
	schema *schema
	script *trips.Script
	arguments

	reply []int64
}

func newOperation(s *schema) *operation {
	o, ok := s.operations.Get().(*operation)
	if !ok {
		o = new(operation)
		o.Call = trips.NewCall(o)
	}
	o.schema, o.Lane = s, trips.Operations
	return o
}

// release lets the operation be used again.
func (o *operation) release() {
	if !o.Reset() {
		return
	}
	o.clear()
	pool := &o.schema.operations
	*o = operation{Call: o.Call, arguments: o.arguments}
	pool.Put(o)
}

// begin makes the call one of an operation with n arguments. It writes the KEYS of the operation,
// the number of its ARGV, and the first of these.
func (o *operation) begin(scope, name string, n, weight int) {
	o.script, o.Outermost = o.schema.lease, o.schema.outermost(scope)
	o.Weight = min(weight, trips.MaxOperationWeight)
	o.clear()
	o.leaseKeys(scope)
	o.int(int64(1 + n))
	o.name(name)
}

// beginLone makes the call one of a script for lone holders. It writes the one key.
func (o *operation) beginLone(s *trips.Script, scope string) {
	o.script, o.Outermost = s, o.schema.outermost(scope)
	o.Weight = loneWeight
	o.clear()
	o.name(scope + recordsSuffix)
}

// outermost returns the outermost part that a scope is below.
func (s *schema) outermost(scope string) string {
	return scope[len(s.prefix) : strings.IndexByte(scope, '}')+1]
}

// Joins implements trips.Parcel.
func (o *operation) Joins(p trips.Parcel) bool {
	other, ok := p.(*operation)
	return ok && o.script == other.script
}
