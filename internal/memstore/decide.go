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
	records [algorithm.MaxCharges]*record // of each charge
	fresh   uint32                        // a bit for each charge whose record is a new one
	beside  bool                          // something may be kept beside a state
}

// decide decides a request. It fails only if an adjustment is meant for another period.
func (s *Store) decide(r *request.Request) error {
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
	r.Work = slices.Grow(r.Work[:0], len(r.Charges))[:len(r.Charges)]
	d := decision{charges: r.Work}
	if err := s.find(&d, now, r); err != nil {
		return err
	}
	reply, changed := algorithm.Run(now, r.Terms, d.charges, r.Buffer[:0])
	for i, c := range r.Charges {
		if has := changed&(1<<i) != 0; has || d.beside {
			s.keep(&d, i, c, has, now)
		}
	}
	r.Buffer = reply
	_, _ = r.Settle(reply) // the model's replies are complete
	if len(r.Answer) > 0 && r.Charges[0].Receipt() != 0 {
		d.records[0].answer = &answer{r.Answer, now + r.AnswerFor}
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
		c.Limit = algorithm.At(c.Limit, now)
		e := s.of(c).record(c)
		if e == nil {
			e = &record{key: c.Path, suffix: c.Suffix}
			d.fresh |= 1 << i
		}
		d.records[i] = e
		at := &d.charges[i]
		*at = algorithm.Charge{
			Rules: c.Rules, Kept: e.Kept, Limit: c.Limit, Cost: c.Cost, Units: c.Units,
			Correction: c.Correction, Adjustment: c.Adjustment,
		}
		if at.State == nil {
			at.State = c.Limit.NewState()
		}
		if c.HoldFor > 0 && at.Holds == nil {
			at.Holds = new(algorithm.Holds)
		}
		if c.Adjusts && at.Adjustments == nil {
			at.Adjustments = new(algorithm.Adjustments)
		}
		d.beside = d.beside || c.Beside()
		if corrects && !adjusts {
			at.Receipt = c.Receipt()
		}
	}
	return nil
}

// keep keeps the record of charge i if something counts. Changed says that its state has changed.
func (s *Store) keep(d *decision, i int, c *request.Charge, changed bool, now int64) {
	e, done := d.records[i], &d.charges[i]
	if changed {
		e.State = done.State
		if e.State.Empty() {
			e.State = nil
		}
	}
	e.Holds, e.Adjustments = done.Holds, done.Adjustments
	fresh := d.fresh&(1<<i) != 0
	switch keeps := !e.Empty(); {
	case keeps && fresh:
		s.of(c).add(c.StateHash(), e, now)
	case !keeps && !fresh:
		s.of(c).remove(c.StateHash(), e)
	}
}
