package algorithm

// atLeast charges what is missing, and returns it.
func (r *run) atLeast(c *Charge) (missing int64, changed bool) {
	q, a, k := QuotaOf(c.Limit), c.Adjustments, c.Adjustment
	if k.Seeds == SeedsFirst && a.Seeded > r.now {
		return 0, false
	}
	changed = q.Find(c.State, r.now)
	reply := c.State.Reply(Cost{}, nil)
	missing = max(0, k.Units-q.Read(reply, Cost{}, 0).Used)
	q = q.Raised(max(0, k.Units-q.limit), nil) // nothing is dropped or owed
	changed = r.force(c, q, q.Cost(missing)) || changed
	if k.Seeds != SeedsNot {
		span, _ := SpanOf(q, reply)
		a.Seeded = r.now + span.Left
	}
	return missing, changed
}

// adjust charges or gives back the units and raises the limit, once for each id.
func (r *run) adjust(c *Charge) (verdict int64, changed bool) {
	q, a, k := QuotaOf(c.Limit), c.Adjustments, c.Adjustment
	switch {
	case a.IDs[k.ID] > r.now:
		return AdjustedBefore, false
	case k.Raise != 0 && k.Ends <= r.now:
		return RaiseEnded, false
	case a.at(r.now)+k.Raise > MaxCount:
		return RaisedTooFar, false
	}
	q = q.Raised(a.add(r.now, k), nil)
	c.Limit = q
	if k.Units < 0 {
		changed = r.give(c, q.Cost(-k.Units), AnyReceipt)
	}
	return 1, r.force(c, q, q.Cost(max(0, k.Units))) || changed
}
