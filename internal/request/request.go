// Package request is what core asks of a store: requests, their charges, and the Store that decides
// them.
package request

import (
	"errors"
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/lease"
)

// ErrPeriod is the error of an adjustment that is meant for another period than the present one.
var ErrPeriod = errors.New("request: the period has passed or has not begun")

// Request is the charges of one caller, on different states: all are spent or none.
type Request struct {
	algorithm.Terms
	Charges []*Charge
	// Asked is how many of the last charges, which only ask whether a Block blocks, the store on Redis
	// decides apart because they have no state. That store sets it. A script gets them without their
	// limits, and decides nothing if one of them has a state.
	Asked int
	// Slot is taken if the charges are admitted. If it is not free, nothing is spent. It may be
	// nil.
	Slot *Slot
	// Answer is kept beside the state of the one charge, which has no holds and no adjustments, if it
	// is spent. It is not kept if it is empty.
	Answer    []byte
	AnswerFor int64 // microseconds

	Verdict int64 // the store fills it in; see algorithm.Operation
	// Unseeded says that nothing was decided, because a key is to be seeded first.
	Unseeded bool
	// Buffer and Work are memory of the store in memory, for replies and for what it decides. The
	// next use of the request overwrites them.
	Buffer []int64
	Work   []algorithm.Charge
}

// Slot is one slot of a semaphore.
type Slot struct {
	Scope   string
	Request lease.Request
	Grant   lease.Grant // of Answered
	// Sent is set before the store is asked. If Answered is not set after that, the slot may or may
	// not be taken.
	Sent, Answered bool
	// Waits says that the caller waits if there is no slot, although Request does not. Missed says
	// that there was none.
	Waits, Missed bool
	// Abandon releases the slot in the background if it may have been granted.
	Abandon func(*Slot)
}

// Queues reports whether there was no slot and the caller is to ask again. Then the slot is as if the
// store had not been asked.
func (s *Slot) Queues() bool {
	if !s.Refused() || !s.Waits && !s.Grant.Late() {
		return false
	}
	s.Sent, s.Answered, s.Missed = false, false, true
	return true
}

// Refused reports whether there was no slot. Nothing was spent then.
func (s *Slot) Refused() bool { return s != nil && s.Answered && s.Grant.Status != lease.Held }

// Asks returns how many charges of a request that spends them once or never only ask whether a Block
// blocks. They are the last ones, behind others that are on no Block. Otherwise it returns 0.
func (r *Request) Asks() int {
	if r.Op > algorithm.Reserve {
		return 0
	}
	onBlock := func(c *Charge) bool {
		_, ok := c.Limit.(*algorithm.Block)
		return ok
	}
	first := slices.IndexFunc(r.Charges, onBlock)
	if first <= 0 {
		return 0
	}
	for _, c := range r.Charges[first:] {
		if !onBlock(c) || c.Units > 0 {
			return 0
		}
	}
	return len(r.Charges) - first
}

// Sent returns all charges except those of Asked.
func (r *Request) Sent() []*Charge { return r.Charges[:len(r.Charges)-r.Asked] }

// Last returns the last n charges.
func (r *Request) Last(n int) []*Charge { return r.Charges[len(r.Charges)-n:] }

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
	return slices.ContainsFunc(r.Charges, func(c *Charge) bool { return c.HoldFor > 0 })
}

// Adjusts reports whether the adjustments of some charge count.
func (r *Request) Adjusts() bool {
	return slices.ContainsFunc(r.Charges, func(c *Charge) bool { return c.Adjusts })
}

// Beside reports whether the state of some charge has holds or adjustments beside it.
func (r *Request) Beside() bool {
	return slices.ContainsFunc(r.Charges, func(c *Charge) bool { return c.Beside() })
}

// Alone reports whether the request shares its script with no other.
func (r *Request) Alone() bool {
	return r.Slot != nil || len(r.Answer) > 0 || r.Op.Adjusts() || r.Beside()
}

// IsBound reports whether the request is meant for one period.
func (r *Request) IsBound() bool {
	k := r.Charges[0].Adjustment
	return k != nil && k.Until > 0
}

// Words is the number of integers in the reply to the request, without those of raises.
func (r *Request) Words() int {
	n := 1
	if !r.Op.Corrects() {
		for _, c := range r.Sent() {
			n += c.Fields
			if c.Adjusts {
				n++
			}
			if c.HoldFor > 0 {
				n++
			}
		}
	}
	return n
}

// IsUnseeded reports whether the reply to the request says that a key is to be seeded first.
func (r *Request) IsUnseeded(reply []int64) bool {
	return len(reply) == 1 && reply[0] == algorithm.Unseeded && !r.Op.Corrects() && r.Adjusts()
}

// Settle reads the reply to the request, which is verdict, each charge's reply, the Raises of each
// limit with adjustments, and the units of each state that may have holds which were held before. It
// returns what follows, and false if the reply is too short.
func (r *Request) Settle(reply []int64) (rest []int64, ok bool) {
	if r.Unseeded = r.IsUnseeded(reply); r.Unseeded {
		return nil, true
	}
	if len(reply) == 0 {
		return nil, false
	}
	r.Verdict, reply = reply[0], reply[1:]
	if r.Op.Corrects() {
		return reply, true
	}
	for i, c := range r.Sent() {
		if len(reply) < c.Fields {
			return nil, false
		}
		c.Reply, reply = reply[:c.Fields:c.Fields], reply[c.Fields:]
		c.Fits = r.Verdict&(1<<i) == 0
		c.Spent = 0
		if c.Receipt() != 0 {
			c.Spent = c.Units
		}
	}
	rest, ok = reply, true
	if r.Beside() {
		rest, ok = r.settleBeside(reply)
	}
	if ok && r.Op == algorithm.AtMost {
		r.settleAtMost()
	}
	return rest, ok
}

// SettleBrief reads a brief reply to a request of Decide on token buckets. It has one number for each
// charge: -2 - 2 * the level that was found if the charge fits, otherwise -3 - 2 * the level.
func (r *Request) SettleBrief(reply []int64) {
	r.Verdict = 0
	r.Buffer = r.Buffer[:0]
	for i, n := range reply {
		r.Verdict |= (n & 1) << i
		r.Buffer = append(r.Buffer, (-2-n)/2, 0, 0)
	}
	for i, c := range r.Sent() {
		c.Reply = r.Buffer[3*i : 3*i+3 : 3*i+3]
		c.Fits = reply[i]%2 == 0
		c.Spent = 0
		if r.Verdict == 0 {
			c.Spent = c.Units
			c.Reply[2] = 1
		}
	}
}

// SettleAsked answers the charges of Asked, whose states are absent.
func (r *Request) SettleAsked() {
	for _, c := range r.Last(r.Asked) {
		c.Reply = c.Limit.(*algorithm.Block).Untouched()
		c.Fits, c.Spent = true, 0
	}
}

// settleAtMost corrects what was read of a verdict that says how often the charges fit, and not which
// of them have no room.
func (r *Request) settleAtMost() {
	for _, c := range r.Charges {
		c.Fits = c.RaisedLimit().Read(c.Reply, algorithm.Cost{}, c.Units).RetryAfter == 0
		if c.Spent > 0 {
			c.Spent *= r.Verdict
		}
	}
}

// settleBeside reads what a reply tells of adjustments and holds.
func (r *Request) settleBeside(reply []int64) (rest []int64, ok bool) {
	for _, c := range r.Charges {
		if reply, ok = c.raise(reply); !ok {
			return nil, false
		}
	}
	for _, c := range r.Charges {
		if c.HoldFor == 0 {
			continue
		}
		if len(reply) == 0 {
			return nil, false
		}
		c.Held, reply = reply[0], reply[1:]
		if r.Hold != "" {
			c.Held += c.Spent
		}
	}
	return reply, true
}

// maxMerged is the largest number of units of a charge that merges: sums of a batch stay exact.
const maxMerged = 1 << 40

// Merges reports whether the request can be decided as one with equal ones. Then each caller needs
// to know nothing but its reply. It doubles the throughput of a hot key and saves three quarters of
// the server's work (go -C lab/bench run . -only decisions).
func (r *Request) Merges() bool {
	if r.Op != algorithm.Decide || r.Slot != nil || r.Receipts || len(r.Answer) > 0 {
		return false
	}
	for _, c := range r.Sent() {
		if !c.Merges || c.Shadow || c.HoldFor > 0 || c.Adjusts ||
			c.Units < 1 || c.Units > min(maxMerged, c.Limit.Capacity()) {
			return false
		}
	}
	return true
}

// Equal reports whether two requests that merge are the same.
func (r *Request) Equal(o *Request) bool {
	if len(r.Charges) != len(o.Charges) {
		return false
	}
	for i, c := range r.Charges {
		if d := o.Charges[i]; c.Units != d.Units || c.Limit != d.Limit || !c.SameState(d) {
			return false
		}
	}
	return true
}
