package algorithm

import "slices"

// held returns the hold of a charge.
func (c *Charge) held() Hold {
	return Hold{
		ID: c.Hold, Units: c.Correction.Units, Cost: c.Correction.Spent,
		Denominator: c.Correction.Denominator, Receipt: c.Receipt,
	}
}

// expire gives back what holds of the charge's state have ended, as far as there is room for them,
// and takes that from the room. It reports whether it changed the state.
func (c *Charge) expire(now int64, room *int) (changed bool) {
	each := 1
	if l, ok := c.Limit.(*SlidingLog); ok {
		each = (int(min(l.most, maxRewritten)) + entriesPerHold - 1) / entriesPerHold
	}
	n := 0
	for ; n < min(len(c.Holds.All), *room/each) && c.Holds.All[n].Until <= now; n++ {
		h := &c.Holds.All[n]
		cost := h.Cost
		if h.Denominator != c.Limit.Denominator() {
			cost.Fraction = 0
		}
		changed = c.release(now, cost, h) || changed
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
func (c *Charge) release(now int64, cost Cost, h *Hold) (changed bool) {
	w, ok := c.State.(*window)
	if !ok {
		return c.give(now, cost, h.Receipt)
	}
	changed = c.Limit.Find(w, now)
	return w.expire(cost, h.Receipt, h.Until) || changed
}

// give refunds a cost. It reports whether it changed the state.
func (c *Charge) give(now int64, cost Cost, receipt int64) (changed bool) {
	changed = c.Limit.Find(c.State, now)
	return c.State.Give(cost, receipt) || changed
}

// force charges a cost under a limit, whether it fits or not. It reports whether there is any.
func (c *Charge) force(now int64, l Limit, cost Cost) bool {
	if cost == (Cost{}) {
		return false
	}
	l.Find(c.State, now)
	c.State.Commit(cost, Terms{Operation: Force})
	return true
}

// keep holds what was charged, if that is asked for.
func (c *Charge) keep(now, receipt int64) {
	if c.HoldFor > 0 && c.Hold != "" && receipt != 0 {
		c.Holds.add(Hold{now + c.HoldFor, c.Hold, c.Units, c.Cost, c.Limit.Denominator(), receipt})
		c.Holds.note(totalOf(c.Limit, receipt), c.Units)
	}
}

// settle ends the hold of a charge and corrects what was spent. If the hold had ended before, nothing
// is spent, so the whole cost is charged.
func (c *Charge) settle(now int64) (ended, changed bool) {
	by := c.Correction.By
	if c.Correction.Held {
		if at := c.Holds.find(now, c.held()); at >= 0 {
			c.Holds.note(totalOf(c.Limit, c.Receipt), -c.Holds.All[at].Units)
			c.Holds.All = slices.Delete(c.Holds.All, at, at+1)
		} else {
			ended, by = true, c.Correction.Whole
		}
	}
	if c.Correction.Refund && !ended {
		return ended, c.give(now, by, c.Receipt)
	}
	return ended, c.force(now, c.Limit, by)
}

// renew prolongs the hold of a charge. It reports whether the hold had ended before.
func (c *Charge) renew(now int64) (ended bool) {
	at := c.Holds.find(now, c.held())
	if at < 0 {
		return true
	}
	h := c.Holds.All[at]
	if until := now + c.HoldFor; until > h.Until {
		c.Holds.All = slices.Delete(c.Holds.All, at, at+1)
		h.Until = until
		c.Holds.add(h)
	}
	return false
}
