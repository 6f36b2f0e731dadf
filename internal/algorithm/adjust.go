package algorithm

// atLeast charges what is missing, and returns it.
func (c *Charge) atLeast(now int64) (missing int64, changed bool) {
	q, a, k := QuotaOf(c.Limit), c.Adjustments, c.Adjustment
	if k.Seeds == SeedsFirst && a.Seeded > now {
		return 0, false
	}
	changed = q.Find(c.State, now)
	reply := c.State.Reply(Cost{}, nil)
	missing = max(0, k.Units-q.Read(reply, Cost{}, 0).Used)
	q = q.Raised(max(0, k.Units-q.limit), nil) // nothing is dropped or owed
	changed = c.force(now, q, q.Cost(missing)) || changed
	if k.Seeds != SeedsNot {
		span, _ := SpanOf(q, reply)
		a.Seeded = now + span.Left
	}
	return missing, changed
}

// correct charges or gives back the units and raises the limit, once for each id.
func (c *Charge) correct(now int64) (verdict int64, changed bool) {
	q, a, k := QuotaOf(c.Limit), c.Adjustments, c.Adjustment
	switch {
	case a.IDs[k.ID] > now:
		return AdjustedBefore, false
	case k.Raise != 0 && k.Ends <= now:
		return RaiseEnded, false
	case a.at(now)+k.Raise > MaxCount:
		return RaisedTooFar, false
	}
	q = q.Raised(a.add(now, k), nil)
	c.Limit = q
	if k.Units < 0 {
		changed = c.give(now, q.Cost(-k.Units), AnyReceipt)
	}
	return 1, c.force(now, q, q.Cost(max(0, k.Units))) || changed
}
