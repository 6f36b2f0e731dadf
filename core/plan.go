package core

import (
	"context"
	"fmt"
	"math"
	"sync"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/lease"
)

// MaxCharges is the largest number of charges in one decision.
const MaxCharges = algorithm.MaxCharges

const (
	algorithmDecide  = algorithm.Decide
	algorithmPeek    = algorithm.Peek
	algorithmReserve = algorithm.Reserve
	algorithmAtMost  = algorithm.AtMost
	algorithmGive    = algorithm.Give
	algorithmForce   = algorithm.Force
)

// Charge is a cost on one key under one policy. A cost of 0 spends nothing, and is denied only by DenyAll and where more
// than the limit is used already. One above the limit is never allowed, and a negative one is an error.
type Charge struct {
	Policy *Policy
	Key    Key
	Cost   int64
}

// plan is one decision on its way: what was asked, and the charges that need a store.
type plan struct {
	op    algorithm.Operation
	bound int64 // of AtMost: units; of Reserve: microseconds
	asked []Charge

	denies [MaxCharges]bool // where an asked charge's limit keeps no state
	place  [MaxCharges]int8 // of each asked charge in wire, or -1 where its policy keeps no state
	wire   []charge         // each of another key
	denied bool             // by a policy that keeps no state
	source Source           // who decides, but for failures
	slot   *slot            // to be taken in the same step, or nil
	keeps  bool             // receipts, for a reservation
	began  moment           // before anything was asked

	whole [1]request // the wire as one request
}

var plans = sync.Pool{New: func() any { return new(plan) }}

// free makes the plan fit for another decision, and holds on to nothing of this one but its arrays.
func (p *plan) free() {
	clear(p.asked)
	clear(p.wire)
	p.asked, p.wire = p.asked[:0], p.wire[:0]
	p.denies, p.denied, p.slot, p.keeps = [MaxCharges]bool{}, false, nil, false
	p.whole[0].charges, p.whole[0].slot = nil, nil
	plans.Put(p)
}

// charge is a charge as a store sees it.
type charge struct {
	policy *Policy
	key    Key
	limit  algorithm.Limit
	from   *limit // whose it is
	number uint64 // of the key and from, and of few others by chance
	units  int64
	cost   algorithm.Cost

	// What came of it. The reply is the algorithm's; its last integer is the receipt of what was charged.
	reply    []int64
	answered bool  // by Redis, or by this process alone
	local    bool  // by this process alone
	whole    int64 // if so, the capacity of the limit that this process has a share of
	failed   bool  // not answered, and its failure mode abstains or denies
	fits     bool  // if answered
	spent    int64 // units
}

// same says whether two charges are on one state.
func (c *charge) same(o *charge) bool {
	return c.key.path == o.key.path && c.from.suffix == o.from.suffix
}

func (c *charge) receipt() int64 { return c.reply[len(c.reply)-1] }

// request is what one caller asks of a store: charges of different keys, all or nothing.
type request struct {
	op      algorithm.Operation
	bound   int64 // see plan
	charges []charge
	slot    *slot // to be taken if the charges are admitted, and else nothing is spent; nil for none
	verdict int64
	reply   []int64  // of memory: an array to be used again
	full    [4]int64 // of Redis, where it answered in brief

	receipts bool // the charges may be given back
	merges   bool // with equal ones
}

// slot is one of a semaphore.
type slot struct {
	scope    string
	ask      lease.Request
	grant    lease.Grant
	sent     bool // to Redis, as far as anybody knows
	answered bool
}

// refused says whether there is none. Then nothing was spent.
func (s *slot) refused() bool { return s != nil && s.answered && s.grant.Status != lease.Held }

// settle tells each charge what the reply to its request says.
func (r *request) settle() {
	for i := range r.charges {
		c := &r.charges[i]
		c.answered = true
		c.fits, c.spent = r.verdict&(1<<i) == 0, 0
		if r.op == algorithmAtMost { // its verdict does not say which charges have no room
			c.fits = c.limit.Read(c.reply, algorithm.Cost{}, c.units).RetryAfter == 0
		}
		if c.receipt() != 0 {
			c.spent = c.units
			if r.op == algorithmAtMost {
				c.spent *= r.verdict
			}
		}
	}
}

// admitted says whether nothing but shadows stood in the way.
func (r *request) admitted() bool {
	for i := range r.charges {
		if !r.charges[i].fits && !r.charges[i].policy.shadow {
			return false
		}
	}
	return true
}

// check says what is wrong with charges.
func check(charges []Charge) error {
	if len(charges) == 0 || len(charges) > MaxCharges {
		return fmt.Errorf("%w: %d of them, at least 1 and at most %d are possible", ErrCharge, len(charges), MaxCharges)
	}
	for i := range charges {
		a := &charges[i]
		switch {
		case a.Policy == nil || a.Policy.own == nil:
			return fmt.Errorf("%w: the policy of charge %d is missing, or not made by NewPolicy", ErrCharge, i)
		case a.Cost < 0:
			return fmt.Errorf("%w: the cost of charge %d (%s) is %d", ErrCharge, i, a.Policy.name, a.Cost)
		case a.Key.outer == 0:
			return fmt.Errorf("%w: charge %d (%s) has none", ErrKey, i, a.Policy.name)
		}
		for j := range charges[:i] {
			if b := charges[j].Policy; b != a.Policy && b.name == a.Policy.name {
				return fmt.Errorf("%w: two policies are named %s", ErrCharge, a.Policy.name)
			}
		}
	}
	return nil
}

// lay checks the charges and lays them out for a store. Charges of the same policy and key become one.
func (p *plan) lay(ctx context.Context, op algorithm.Operation, asked []Charge) error {
	if err := check(asked); err != nil {
		return err
	}
	p.op, p.asked = op, append(p.asked[:0], asked...)
	for i := range p.asked {
		a := &p.asked[i]
		limit, err := a.Policy.limitOf(ctx, a.Key)
		if err != nil {
			clear(p.asked)
			p.asked = p.asked[:0] // there are no results
			return err
		}
		current := limit.current()
		if current == nil {
			p.place[i], p.denies[i] = -1, limit.denies
			p.denied = p.denied || limit.denies && !a.Policy.shadow
			continue
		}
		p.place[i] = p.add(a, current, limit)
	}
	for i := range p.wire {
		c := &p.wire[i]
		c.cost = c.limit.Cost(c.units)
	}
	return nil
}

func (p *plan) add(a *Charge, limit algorithm.Limit, from *limit) int8 {
	for i := range p.wire {
		if c := &p.wire[i]; c.policy == a.Policy && c.key == a.Key {
			c.units = min(c.units, math.MaxInt64-a.Cost) + a.Cost
			return int8(i)
		}
	}
	at := len(p.wire)
	p.wire = append(p.wire, charge{})
	c := &p.wire[at] // filled in where it stays: it is large
	c.policy, c.key, c.limit, c.from, c.units = a.Policy, a.Key, limit, from, a.Cost
	c.number = a.Key.number() ^ from.number
	return int8(at)
}

// results fills in a decision's results.
func (p *plan) results(d *Decision) {
	d.resize(len(p.asked))
	for i := range p.asked {
		r := d.at(i)
		r.Policy, r.Source = p.asked[i].Policy, p.source
		switch {
		case p.place[i] < 0:
			r.stateless(p.denies[i])
		default:
			r.read(&p.wire[p.place[i]], p, d.Cause)
		}
	}
}
