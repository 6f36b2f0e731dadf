package core

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// MaxCharges is the largest number of charges in one decision.
const MaxCharges = algorithm.MaxCharges

// NoCost is the Cost of a charge that spends nothing.
const NoCost = -1

// Charge is a cost on one key under one policy.
type Charge struct {
	Policy *Policy
	Key    Key
	// Cost is how many units the charge spends. Zero means 1, and NoCost spends nothing. DenyAll
	// denies NoCost too, and so does a key whose Used exceeds its Limit. A cost above the limit is
	// always denied. Other negative costs are errors.
	Cost int64
	// Limit replaces the policy's limit in this charge, such as by that of a customer's plan. It is
	// the policy's if nil. Charges of one key count together whatever their limits, unless these
	// are of different algorithms.
	Limit Algorithm
	// Clamp lowers a Cost above the limit to the limit with its raises, so that an untouched key
	// admits it. It is for estimates: Reservation.Settle charges the rest as a debt. Under a Raisable
	// policy a Cost above the limit takes one more round trip, which learns the raises.
	Clamp bool
}

// units returns how many units the charge spends.
func (c *Charge) units() int64 {
	if c.Cost <= 0 {
		return c.Cost + 1
	}
	return c.Cost
}

// inquiry is one decision on its way: what the caller asked, and the charges that a store decides.
type inquiry struct {
	op    algorithm.Operation // that the caller asked for
	place []int8              // of each asked charge: its index in wire, or stateless or denied
	wire  []charge            // one for each policy and key
	// whole is the request of all charges. Its Bound falls to what SpendUpTo was granted.
	whole [1]request.Request
	began moment // before the store was asked

	admitted bool  // nothing has denied so far
	cause    error // why the failure modes decide, or nil

	beside    bool      // some state has holds or adjustments beside it
	holds     bool      // charges under a Hold are held
	heldSince time.Time // a time before which nothing was held
	seedBy    time.Time // until when it waits for ledgers; zero until it needs one
}

// What place has of a charge under a limit that keeps no state.
const (
	stateless = -1
	denied    = -2
)

// charge is one that a store decides.
type charge struct {
	request.Charge
	from  *limit
	given string // Key.given

	asked  int64 // units, before they are clamped
	clamps bool  // Charge.Clamp
	raised int64 // by how much the limit to which it is clamped is raised
	local  bool  // this process alone decided
	whole  int64 // of a local charge: the capacity of the limit that this process has a share of
	failed bool  // nobody decided, and the failure mode abstains or denies
}

// key returns the key that the caller charged.
func (c *charge) key() Key { return Key{c.Key, c.given} }

// answered reports whether a store has decided the charge.
func (c *charge) answered() bool { return c.Reply != nil }

var inquiries = sync.Pool{New: func() any { return new(inquiry) }}

func newInquiry(op algorithm.Operation, bound int64, began moment) *inquiry {
	p := inquiries.Get().(*inquiry)
	r := &p.whole[0]
	*p = inquiry{
		op: op, began: began, admitted: true,
		place: p.place[:0], wire: p.wire[:0],
		whole: [1]request.Request{{
			Terms: algorithm.Terms{Op: op, Bound: bound}, Charges: r.Charges[:0], Buffer: r.Buffer, Work: r.Work,
		}},
	}
	return p
}

// release lets the inquiry be used again with the memory that it has. Keys may be long, so it keeps
// none.
func (p *inquiry) release() {
	clear(p.wire)
	inquiries.Put(p)
}

// limit is an algorithm that is compiled for one policy.
type limit struct {
	compiled
	policy *Policy
	own    Algorithm
	kind   request.Kind // has no suffix if there is no state
}

// current returns the limit that holds now. It is nil without state.
func (c *compiled) current() algorithm.Limit {
	if c.calendar != nil {
		return c.calendar.Current()
	}
	return c.limit
}

// limitOf returns the limit of a charge: its own, or the policy's if that is nil.
func (p *Policy) limitOf(own Algorithm) (*limit, error) {
	if own == nil {
		return p.own, nil
	}
	for i := range p.first {
		if l := p.first[i].Load(); l == nil {
			break
		} else if l.own == own {
			return l, nil
		}
	}
	name, ok := identity(own)
	if ok {
		if l, ok := p.others.Load(name); ok {
			return l.(*limit), nil
		}
	}
	l, err := p.compile(own)
	if err != nil {
		return nil, prefixed("core: limit of a charge under "+p.cfg.Name+": ", err)
	}
	if ok {
		if p.remembered.Add(1) > maxLimits {
			p.others.Clear()
			p.remembered.Store(1)
		}
		p.others.Store(name, l)
		_, log := own.(SlidingLog) // has no ==
		for i := range p.first {
			if log || p.first[i].CompareAndSwap(nil, l) {
				break
			}
		}
	}
	return l, nil
}

// check says what is wrong with charges.
func check(charges []Charge) error {
	if len(charges) == 0 || len(charges) > MaxCharges {
		return fmt.Errorf("%w: %d charges, at least 1 and at most %d are possible",
			ErrCharge, len(charges), MaxCharges)
	}
	for i := range charges {
		a := &charges[i]
		switch {
		case a.Policy == nil || a.Policy.own == nil:
			return fmt.Errorf("%w: the policy of charge %d is missing, or not made by NewPolicy",
				ErrCharge, i)
		case a.Cost < NoCost:
			return fmt.Errorf("%w: the cost of charge %d (%s) is %d",
				ErrCharge, i, a.Policy.cfg.Name, a.Cost)
		case a.Key.in.Outer == 0:
			return fmt.Errorf("%w: charge %d (%s) has no key", ErrKey, i, a.Policy.cfg.Name)
		}
		for j := range charges[:i] {
			if b := charges[j].Policy; b != a.Policy && b.cfg.Name == a.Policy.cfg.Name {
				return fmt.Errorf("%w: two policies are named %s", ErrCharge, a.Policy.cfg.Name)
			}
		}
	}
	return nil
}

// lay checks the charges and lays them out for a store. Charges of the same policy and key become
// one.
func (p *inquiry) lay(asked []Charge) error {
	if err := check(asked); err != nil {
		return err
	}
	p.wire = slices.Grow(p.wire, len(asked)) // whole.Charges points into it
	for i := range asked {
		if err := p.add(&asked[i]); err != nil {
			p.place = p.place[:0]
			return err
		}
	}
	return nil
}

// add adds an asked charge.
func (p *inquiry) add(a *Charge) error {
	from, err := a.Policy.limitOf(a.Limit)
	if err != nil {
		return err
	}
	current := from.current()
	if current == nil {
		p.addStateless(a, from)
		return nil
	}
	for at := range p.wire {
		if c := &p.wire[at]; c.Path == a.Key.in.Path && c.Suffix == from.kind.Suffix {
			p.place = append(p.place, int8(at))
			return c.join(a, from)
		}
	}
	p.place = append(p.place, int8(len(p.wire)))
	p.wire = p.wire[:len(p.wire)+1]
	c := &p.wire[len(p.wire)-1] // is filled in here, because it is large
	c.at(a.Key, from, current)
	c.asked = a.units()
	c.price(a.Clamp)
	p.beside = p.beside || c.Beside()
	p.whole[0].Charges = append(p.whole[0].Charges, &c.Charge)
	return nil
}

// addStateless adds an asked charge under a limit that keeps no state.
func (p *inquiry) addStateless(a *Charge, from *limit) {
	if !from.denies {
		p.place = append(p.place, stateless)
		return
	}
	p.place = append(p.place, denied)
	p.admitted = p.admitted && a.Policy.cfg.Shadow
}

// join adds the cost of an asked charge to one on the same state. One state has one limit.
func (c *charge) join(a *Charge, from *limit) error {
	if c.from != from && !sameLimit(c.from.own, from.own) {
		return fmt.Errorf("%w: two limits of %s for one key", ErrCharge, a.Policy.cfg.Name)
	}
	c.asked = min(c.asked, math.MaxInt64-a.units()) + a.units()
	c.price(a.Clamp)
	return nil
}

// price sets the cost of the units under the limit, to which it lowers them if it is to clamp.
func (c *charge) price(clamp bool) {
	c.Units = c.asked
	if c.clamps = c.clamps || clamp; c.clamps {
		c.Units = min(c.Units, c.Limit.Capacity()+c.raised)
	}
	c.Cost = c.Limit.Cost(c.Units)
}

// raise learns by how much the limits are raised to which charges of a request are clamped. Only the
// store knows that, so it takes one more round trip. The context that it returns bounds both.
func (g *Gate) raise(ctx context.Context, p *inquiry, r *request.Request) (context.Context, error) {
	var clamped []*charge
	var looks []*request.Charge
	for _, asked := range r.Charges {
		if c := p.of(asked); c.Adjusts && c.Units != c.asked {
			look := c.Charge
			look.Units, look.Cost = 0, c.Limit.Cost(0)
			look.Kind = c.Bare()
			look.Kind.Adjusts = true
			clamped, looks = append(clamped, c), append(looks, &look)
		}
	}
	if len(looks) == 0 {
		return ctx, nil
	}
	ctx = g.bound(ctx)
	peek := []request.Request{{Terms: algorithm.Terms{Op: algorithm.Peek}, Charges: looks}}
	if err := g.store.Decide(ctx, peek); err != nil {
		return ctx, request.Unsent{Err: err}
	}
	for i, c := range clamped {
		c.raised = looks[i].Raised()
		c.price(true)
	}
	return ctx, nil
}

// chargeOn returns a charge of no cost on the state of a key, and the limit that holds for it.
func chargeOn(key Key, from *limit, current algorithm.Limit) *charge {
	c := new(charge)
	c.at(key, from, current)
	return c
}

// at names the state of a zero charge, and the limit that holds for it.
func (c *charge) at(key Key, from *limit, current algorithm.Limit) {
	c.from = from
	c.given = key.given
	c.Kind = &from.kind
	c.Key = key.in
	c.Limit = current
}

// of returns the charge that a request holds.
func (p *inquiry) of(c *request.Charge) *charge {
	for i := range p.wire {
		if &p.wire[i].Charge == c {
			return &p.wire[i]
		}
	}
	return nil
}

// results fills in the decision, and its results for the charges that were laid out. Source is that
// of the Gate's store. The decision has the highest of its results: those of failures rank above
// the store's, the strictest last.
func (p *inquiry) results(d *Decision, charges []Charge, source Source) {
	d.Allowed = p.admitted
	d.Cause = p.cause
	d.resize(len(charges))
	for i := range charges {
		r := d.at(i)
		r.Policy = charges[i].Policy
		r.Source = source
		if p.place[i] < 0 {
			r.stateless(p.place[i] == denied)
		} else {
			r.read(&p.wire[p.place[i]], p)
		}
		d.Source = max(d.Source, r.Source)
	}
	if !d.Allowed {
		p.heedRaises(d)
	}
}

// heedRaises makes the wait of a denial so long that charges under raised limits fit then too.
func (p *inquiry) heedRaises(d *Decision) {
	for wait := d.RetryAfter(); wait > 0; wait = d.later {
		longer := wait
		for i := range d.n {
			if at := p.place[i]; at >= 0 && d.at(i).kept == 0 {
				longer = p.wire[at].later(longer)
			}
		}
		if longer == wait {
			return
		}
		d.later = longer
	}
}

// later returns the first time, at least that wait, after which the charge fits if its limit is
// raised. Otherwise the wait of its result is enough.
func (c *charge) later(wait time.Duration) time.Duration {
	if len(c.Raises) == 0 || c.Shadow || wait == Never {
		return wait
	}
	return algorithm.QuotaOf(c.RaisedLimit()).Later(c.Reply, c.Units, wait, c.clamps)
}
