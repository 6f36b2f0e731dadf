package algorithm

import (
	"cmp"
	"fmt"
	"slices"
)

// Hold is the units of one charge that go back at a time, unless they are settled or the hold is
// renewed before.
type Hold struct {
	Until       int64  // microseconds
	ID          string // of the request
	Cost        Cost
	Denominator int64 // of the cost
	Receipt     int64
}

// Text returns what a hold is stored as.
func (h *Hold) Text() string {
	return fmt.Sprint(h.ID, " ", h.Denominator, " ", h.Cost.Whole, " ", h.Cost.Fraction, " ", h.Receipt)
}

// Holds are those of one state, the first to end first. The zero value is none.
type Holds struct{ all []Hold }

// maxExpired is the largest number of holds of one state that one request ends.
const maxExpired = 1000

// Correction is what a settled charge becomes. Costs that a state may not take in one step are in
// two parts.
type Correction struct {
	Held        bool
	Spent       Cost // when it was charged
	Denominator int64
	Refund      bool // By is given back; otherwise it is charged
	By, Whole   [2]Cost
}

// held returns the hold of a charge.
func (c *Charge) held(id string) Hold {
	return Hold{
		ID: id, Cost: c.Correction.Spent, Denominator: c.Correction.Denominator, Receipt: c.Receipt,
	}
}

func compareHolds(a, b Hold) int {
	return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.Text(), b.Text()))
}

func (s *Holds) add(h Hold) {
	at, found := slices.BinarySearchFunc(s.all, h, compareHolds)
	if !found {
		s.all = slices.Insert(s.all, at, h)
	}
}

// find returns the index of a hold that has not ended, or -1.
func (s *Holds) find(now int64, h Hold) int {
	return slices.IndexFunc(s.all, func(o Hold) bool {
		h.Until = o.Until
		return o == h && o.Until > now
	})
}

// Empty reports whether there are none.
func (s *Holds) Empty() bool { return s == nil || len(s.all) == 0 }

// Expires returns when the last of them ends.
func (s *Holds) Expires() int64 {
	if s.Empty() {
		return 0
	}
	return s.all[len(s.all)-1].Until
}

// Each calls f with each hold.
func (s *Holds) Each(f func(h Hold)) {
	if s != nil {
		for _, h := range s.all {
			f(h)
		}
	}
}

// expire gives back what holds of the charge's state have ended. It reports whether it changed the
// state.
func (c *Charge) expire(now int64) (changed bool) {
	n := 0
	for ; n < min(len(c.Holds.all), maxExpired) && c.Holds.all[n].Until <= now; n++ {
		h := &c.Holds.all[n]
		cost := h.Cost
		if h.Denominator != c.Limit.Denominator() {
			cost.Fraction = 0
		}
		changed = c.give(now, cost, h.Receipt) || changed
	}
	c.Holds.all = slices.Delete(c.Holds.all, 0, n)
	if changed && c.State.Empty() {
		c.State, c.Gone = c.Limit.NewState(), true
	}
	return changed
}

// give refunds a cost. It reports whether it changed the state.
func (c *Charge) give(now int64, cost Cost, receipt int64) (changed bool) {
	changed = c.Limit.Find(c.State, now)
	return c.Limit.Give(c.State, cost, receipt) || changed
}

// keep holds what was charged, if that is asked for.
func (c *Charge) keep(now int64, id string, receipt int64) {
	c.Gone = false
	if c.HoldFor > 0 && id != "" && receipt != 0 {
		c.Holds.add(Hold{now + c.HoldFor, id, c.Cost, c.Limit.Denominator(), receipt})
	}
}

// settle ends the holds of the charges and corrects what was spent. Of a hold that had ended
// before, nothing is spent, so the whole cost is charged.
func settle(now int64, terms Terms, charges []Charge) (verdict int64, changed uint32) {
	for i := range charges {
		c := &charges[i]
		by := c.Correction.By
		if c.Correction.Held {
			if at := c.Holds.find(now, c.held(terms.Hold)); at >= 0 {
				c.Holds.all = slices.Delete(c.Holds.all, at, at+1)
			} else {
				verdict |= 1 << i
				by = c.Correction.Whole
			}
		}
		if c.Correction.Refund && verdict&(1<<i) == 0 {
			if c.give(now, by[0], c.Receipt) {
				changed |= 1 << i
			}
			by = [2]Cost{}
		}
		for _, cost := range by {
			if cost != (Cost{}) {
				c.Limit.Find(c.State, now)
				c.Limit.Commit(c.State, cost, Terms{Operation: Force})
				c.Gone = false
				changed |= 1 << i
			}
		}
	}
	return verdict, changed
}

// renew prolongs holds.
func renew(now int64, terms Terms, charges []Charge) (verdict int64) {
	for i := range charges {
		c := &charges[i]
		at := c.Holds.find(now, c.held(terms.Hold))
		if at < 0 {
			verdict |= 1 << i
			continue
		}
		h := c.Holds.all[at]
		if until := now + c.HoldFor; until > h.Until {
			c.Holds.all = slices.Delete(c.Holds.all, at, at+1)
			h.Until = until
			c.Holds.add(h)
		}
	}
	return verdict
}
