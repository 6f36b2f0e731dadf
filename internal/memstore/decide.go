package memstore

import (
	"math/bits"
	"slices"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// decision is one request that is being decided.
type decision struct {
	charges []algorithm.Charge
	fresh   uint32 // a bit for each charge without a state
	beside  bool   // something is kept beside a state
}

// decide decides a request. It fails only if an adjustment is meant for another period.
func (s *Store) decide(r *request.Request) error {
	r.Work = slices.Grow(r.Work[:0], len(r.Charges))[:len(r.Charges)]
	d := decision{charges: r.Work}
	locked := uint64(0) // a bit for each shard
	for _, c := range r.Charges {
		locked |= 1 << s.shard(c)
	}
	// Requests lock in one order, so that no two wait for each other.
	for rest := locked; rest != 0; rest &= rest - 1 {
		s.shards[bits.TrailingZeros64(rest)].Lock()
	}
	defer func() { // a Clock may panic
		for rest := locked; rest != 0; rest &= rest - 1 {
			s.shards[bits.TrailingZeros64(rest)].Unlock()
		}
	}()
	now := s.clock()
	if err := s.find(&d, now, r); err != nil {
		return err
	}
	terms := algorithm.Terms{Operation: r.Op, Bound: r.Bound, Receipts: r.Receipts}
	reply, changed := algorithm.Run(now, terms, d.charges, r.Buffer[:0])
	if d.beside {
		changed &^= s.keepBeside(&d, now, r, changed)
	}
	for ; changed != 0; changed &= changed - 1 {
		i := bits.TrailingZeros32(changed)
		switch c := r.Charges[i]; {
		case d.charges[i].State.Empty():
			s.of(c).remove(c.StateHash(), c.Key, c.Suffix)
		case d.fresh&(1<<i) != 0:
			s.of(c).add(c.StateHash(), record{key: c.Key, suffix: c.Suffix, state: d.charges[i].State}, now)
		}
	}
	r.Buffer = reply
	_, _ = r.Settle(reply) // the model's replies are complete
	if c := r.Charges[0]; len(r.Answer) > 0 && c.Receipt() != 0 {
		in := s.of(c)
		e := in.record(c.StateHash(), c.Key, c.Suffix)
		e.answer, e.next = &answer{r.Answer, now + r.AnswerFor}, nil
		in.remove(c.StateHash(), c.Key, c.Suffix)
		in.add(c.StateHash(), e, now)
	}
	return nil
}

// find finds the state of each charge, and what is kept beside it.
func (s *Store) find(d *decision, now int64, r *request.Request) error {
	corrects, adjusts := r.Op.Corrects(), r.Op.Adjusts()
	for i, c := range r.Charges {
		if k := c.Adjustment; k != nil && k.Until > 0 && (now < k.From || now >= k.Until) {
			return request.ErrPeriod
		}
		if p, ok := c.Limit.(*algorithm.Period); ok {
			c.Limit = p.At(now)
		}
		state, kept := s.of(c).find(c.StateHash(), c.Key, c.Suffix)
		if state == nil {
			state = c.Limit.NewState()
			d.fresh |= 1 << i
		}
		if kept != nil || c.Alone() || corrects {
			kept, d.beside = beside(c, kept, r.Hold), true
		}
		at := &d.charges[i]
		at.State, at.Limit, at.Cost = state, c.Limit, c.Cost
		at.Shadow, at.Receipt, at.Kept = c.Shadow, 0, kept
		if corrects && !adjusts {
			at.Receipt = c.Receipt()
		}
	}
	return nil
}

// beside prepares what is kept beside the state of a charge, which may be nil, for a request.
func beside(c *request.Charge, k *algorithm.Kept, hold string) *algorithm.Kept {
	if k == nil {
		k = new(algorithm.Kept)
	}
	if c.HoldFor > 0 && k.Holds == nil {
		k.Holds = new(algorithm.Holds)
	}
	if c.Adjusts && k.Adjustments == nil {
		k.Adjustments = new(algorithm.Adjustments)
	}
	k.Hold, k.HoldFor, k.Units, k.Correction, k.Gone = hold, c.HoldFor, c.Units, c.Correction, false
	k.Adjusts, k.Seeds, k.Adjustment, k.Raised = c.Adjusts, c.Seeds, c.Adjustment, 0
	return k
}

// keepBeside keeps the records of states that something is kept beside, and returns their charges.
func (s *Store) keepBeside(
	d *decision, now int64, r *request.Request, changed uint32,
) (done uint32) {
	for i, c := range r.Charges {
		bit := uint32(1) << i
		k := d.charges[i].Kept
		if k == nil || k.Holds == nil && k.Adjustments == nil {
			continue
		}
		e := record{key: c.Key, suffix: c.Suffix, state: d.charges[i].State, kept: k}
		if k.Gone || changed&bit != 0 && e.state.Empty() || d.fresh&^changed&bit != 0 {
			e.state = nil
		}
		s.of(c).remove(c.StateHash(), c.Key, c.Suffix)
		if e.state != nil || !k.Empty() {
			s.of(c).add(c.StateHash(), e, now)
		}
		done |= bit
	}
	return done
}
