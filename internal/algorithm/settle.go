package algorithm

import "slices"

// holdOf returns the hold of a charge.
func (r *run) holdOf(c *Charge) Hold {
	return Hold{
		ID: r.Hold, Units: c.Correction.Units, Cost: c.Correction.Spent,
		Denominator: c.Correction.Denominator, Receipt: c.Receipt,
	}
}

// expire gives back what holds of the charge's state have ended, as far as there is room for them,
// and takes that from the room. It reports whether it changed the state.
func (r *run) expire(c *Charge, room *int) (changed bool) {
	each := 1
	if l, ok := c.Limit.(*SlidingLog); ok {
		each = (int(min(l.most, maxRewritten)) + entriesPerHold - 1) / entriesPerHold
	}
	n := 0
	for ; n < min(len(c.Holds.All), *room/each) && c.Holds.All[n].Until <= r.now; n++ {
		h := &c.Holds.All[n]
		cost := h.Cost
		if h.Denominator != c.Limit.Denominator() {
			cost.Fraction = 0
		}
		changed = r.release(c, cost, h) || changed
		c.Holds.note(totalOf(c.Limit, h.Receipt), -h.Units)
	}
	c.Holds.All = slices.Delete(c.Holds.All, 0, n)
	*room -= n * each
	if changed && c.State.Empty() {
		c.State = c.Limit.NewState()
	}
	return changed
}

// release gives back a cost of a hold that has ended. It reports whether it changed the state.
func (r *run) release(c *Charge, cost Cost, h *Hold) (changed bool) {
	w, ok := c.State.(*window)
	if !ok {
		return r.give(c, cost, h.Receipt)
	}
	changed = c.Limit.Find(w, r.now)
	return w.expire(cost, h.Receipt, h.Until) || changed
}

// give refunds a cost. It reports whether it changed the state.
func (r *run) give(c *Charge, cost Cost, receipt int64) (changed bool) {
	changed = c.Limit.Find(c.State, r.now)
	return c.State.Give(cost, receipt) || changed
}

// force charges a cost under a limit, whether it fits or not. It reports whether there is any.
func (r *run) force(c *Charge, l Limit, cost Cost) bool {
	if cost == (Cost{}) {
		return false
	}
	l.Find(c.State, r.now)
	c.State.Commit(cost, Terms{Op: Force})
	return true
}

// hold holds what was charged, if that is asked for.
func (r *run) hold(c *Charge, receipt int64) {
	if c.HoldFor > 0 && r.Hold != "" && receipt != 0 {
		c.Holds.add(Hold{r.now + c.HoldFor, r.Hold, c.Units, c.Cost, c.Limit.Denominator(), receipt})
		c.Holds.note(totalOf(c.Limit, receipt), c.Units)
	}
}

// settle ends the hold of a charge and corrects what was spent. If the hold had ended before, nothing
// is spent, so the whole cost is charged.
func (r *run) settle(c *Charge) (ended, changed bool) {
	by := c.Correction.By
	if c.Correction.Held {
		if at := c.Holds.find(r.now, r.holdOf(c)); at >= 0 {
			c.Holds.note(totalOf(c.Limit, c.Receipt), -c.Holds.All[at].Units)
			c.Holds.All = slices.Delete(c.Holds.All, at, at+1)
		} else {
			ended, by = true, c.Correction.Whole
		}
	}
	if c.Correction.Refund && !ended {
		return ended, r.give(c, by, c.Receipt)
	}
	return ended, r.force(c, c.Limit, by)
}

// renew prolongs the hold of a charge. It reports whether the hold had ended before.
func (r *run) renew(c *Charge) (ended bool) {
	at := c.Holds.find(r.now, r.holdOf(c))
	if at < 0 {
		return true
	}
	h := c.Holds.All[at]
	if until := r.now + c.HoldFor; until > h.Until {
		c.Holds.All = slices.Delete(c.Holds.All, at, at+1)
		h.Until = until
		c.Holds.add(h)
	}
	return false
}
