// Package request is what core asks of a store: requests, their charges, and the Store that decides
// them.
package request

import (
	"math"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/lease"
)

// HoldsSuffix follows the name of a state in the name of its holds.
const HoldsSuffix = ":h1"

// Charge is a cost on one state, and what a store made of it.
type Charge struct {
	Key     string // the key's path, its outermost part first
	Outer   int    // length of the outermost part, its braces included
	KeyHash uint64 // of Key
	Suffix  string // of the state's name, after the key: policy, algorithm and version
	Hash    uint64 // of Key and Suffix
	Limit   algorithm.Limit
	Shadow  bool // counts, and never denies
	Units   int64
	Cost    algorithm.Cost // of the units, under the limit
	// HoldFor is how long units under the policy are held, in microseconds. It is 0 if they are not.
	HoldFor    int64
	Correction *algorithm.Correction // of Settle and Renew

	// The store fills in these. The last integer of the reply is the receipt.
	Reply []int64
	Fits  bool
	Spent int64 // units
}

// Outermost is the part of the key that picks a hash slot.
func (c *Charge) Outermost() string { return c.Key[:c.Outer] }

// SameState reports whether two charges are on one state.
func (c *Charge) SameState(o *Charge) bool { return c.Key == o.Key && c.Suffix == o.Suffix }

// Receipt is what gives the charge back. It is 0 if nothing was charged.
func (c *Charge) Receipt() int64 { return c.Reply[len(c.Reply)-1] }

// Add raises the units of the charge, and stops at the largest number.
func (c *Charge) Add(units int64) { c.Units = min(c.Units, math.MaxInt64-units) + units }

// Request is the charges of one caller, on different states: all are spent or none.
type Request struct {
	Op       algorithm.Operation
	Bound    int64 // of AtMost: units; of Reserve: microseconds
	Receipts bool  // the charges may be given back
	// Hold is the id under which the charges with a HoldFor are held, settled or renewed. If it is
	// empty they are not held.
	Hold    string
	Charges []*Charge
	// Slot is taken if the charges are admitted. If it is not free, nothing is spent. It may be nil.
	Slot *Slot

	Verdict int64   // the store fills it in; see algorithm.Operation
	Buffer  []int64 // of replies in memory: replies of the next use of the request overwrite it
}

// Slot is one slot of a semaphore.
type Slot struct {
	Scope   string
	Request lease.Request
	Grant   lease.Grant // of Answered
	// Sent is set before the store is asked. If Answered is not set after that, the slot may or may
	// not be taken.
	Sent, Answered bool
}

// Refused reports whether there was no slot. Nothing was spent then.
func (s *Slot) Refused() bool { return s != nil && s.Answered && s.Grant.Status != lease.Held }

// Admitted reports whether nothing but shadows denied.
func (r *Request) Admitted() bool {
	for _, c := range r.Charges {
		if !c.Fits && !c.Shadow {
			return false
		}
	}
	return true
}

// Holds reports whether some charge is on a state that may have holds.
func (r *Request) Holds() bool {
	for _, c := range r.Charges {
		if c.HoldFor > 0 {
			return true
		}
	}
	return false
}

// Words is the number of integers in the reply to the request.
func (r *Request) Words() int {
	n := 1
	if !r.Op.Corrects() {
		for _, c := range r.Charges {
			n += c.Limit.Fields()
		}
	}
	return n
}

// Settle reads the reply to the request, which is verdict and each charge's reply, and reports
// whether it was as long as that.
func (r *Request) Settle(reply []int64) bool {
	if len(reply) != r.Words() {
		return false
	}
	r.Verdict, reply = reply[0], reply[1:]
	if r.Op.Corrects() {
		return true
	}
	for i, c := range r.Charges {
		n := c.Limit.Fields()
		c.Reply, reply = reply[:n:n], reply[n:]
		c.Fits, c.Spent = r.Verdict&(1<<i) == 0, 0
		if r.Op == algorithm.AtMost { // its verdict does not say which charges have no room
			c.Fits = c.Limit.Read(c.Reply, algorithm.Cost{}, c.Units).RetryAfter == 0
		}
		if c.Receipt() != 0 {
			c.Spent = c.Units
			if r.Op == algorithm.AtMost {
				c.Spent *= r.Verdict
			}
		}
	}
	return true
}
