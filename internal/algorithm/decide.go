package algorithm

// Run decides one request at now and appends the reply: the verdict and, unless the operation
// Corrects, each charge's reply, the Raises of each that adjusts and Held of each that may be held. The
// charges have different states. Bit i of changed is set if charge i changed its State. AtMost sets
// each charge's cost to what was charged. At first Run raises the limits, and refunds the holds that
// have ended. If a key is to be seeded before, the reply is Unseeded and nothing changes.
func Run(now int64, terms Terms, charges []Charge, reply []int64) (_ []int64, changed uint32) {
	r := run{now: now, Terms: terms}
	for i := range charges {
		r.kept = r.kept || charges[i].Kept != nil
	}
	if r.kept {
		if unseeded := r.raise(charges); unseeded && terms.Operation.Seeds() {
			return append(reply, Unseeded), 0
		}
		r.expire(charges)
	}
	head := len(reply)
	reply = append(reply, 0)
	if !terms.Operation.Corrects() {
		reply = r.decide(charges, reply)
	} else {
		for i := range charges {
			r.correct(i, &charges[i])
		}
	}
	reply[head] = r.verdict
	return reply, r.changed
}

// run is one request that is being decided. Its charges and its reply are passed beside it, because
// the compiler would have all of them escape if one does.
type run struct {
	now int64
	Terms
	kept              bool // most requests have nothing beside their states
	verdict           int64
	violated, changed uint32 // a bit for each charge
	denied            bool   // by a charge that is no shadow
}

// decide checks every charge, then commits every charge, all or nothing, and appends the replies.
func (r *run) decide(charges []Charge, reply []int64) []int64 {
	head := len(reply) - 1
	reply = r.check(charges, reply)
	if r.Operation == AtMost {
		r.multiply(charges)
	}
	if r.Operation != Peek && !r.denied {
		r.commit(charges, reply[head:])
	}
	if r.kept {
		reply = r.replyKept(charges, reply)
	}
	return reply
}

// replyKept appends the Raises of each charge that adjusts and Held of each that may be held.
func (r *run) replyKept(charges []Charge, reply []int64) []int64 {
	for i := range charges {
		if c := &charges[i]; c.Kept != nil && c.Adjusts {
			reply = c.Adjustments.tell(r.now, reply)
		}
	}
	for i := range charges {
		if c := &charges[i]; c.Kept != nil && c.HoldFor > 0 {
			reply = append(reply, c.Held)
		}
	}
	return reply
}

// raise raises the limits. It reports whether a key is to be seeded before it is charged.
func (r *run) raise(charges []Charge) (unseeded bool) {
	for i := range charges {
		if c := &charges[i]; c.Kept != nil && c.Adjusts {
			c.Limit = QuotaOf(c.Limit).Raised(c.Adjustments.at(r.now), nil)
			unseeded = unseeded || c.Seeds && c.Adjustments.Seeded <= r.now
		}
	}
	return unseeded
}

// expire gives back the holds that have ended, at most maxExpired of all states.
func (r *run) expire(charges []Charge) {
	room := maxExpired
	for i := range charges {
		if c := &charges[i]; c.Kept != nil && c.HoldFor > 0 && c.expire(r.now, &room) {
			r.changed |= 1 << i
		}
	}
}

// check finds the states, appends the replies, and notes which charges do not fit. AtMost and Force
// have no such charge. The verdict is their bits.
func (r *run) check(charges []Charge, reply []int64) []int64 {
	must := r.Operation != AtMost && r.Operation != Force
	head := len(reply) - 1
	for i := range charges {
		c := &charges[i]
		if c.Limit.Find(c.State, r.now) {
			r.changed |= 1 << i
		}
		begin := len(reply)
		reply = c.State.Reply(c.Cost, reply)
		c.end = len(reply) - head
		if c.Kept != nil && c.HoldFor > 0 {
			c.Held = c.Holds.units(c.Limit, reply[begin:])
		}
		if must && !c.State.Fits(c.Cost, r.Terms) {
			r.violated |= 1 << i
			r.denied = r.denied || !c.Shadow
		}
	}
	r.verdict = int64(r.violated)
	return reply
}

// multiply makes the costs their largest multiple that fits. A shadow is violated if its own does
// not, because shadows do not bound it.
func (r *run) multiply(charges []Charge) {
	r.verdict = largestMultiple(charges, r.Bound)
	for i := range charges {
		if c := &charges[i]; c.Shadow && !c.State.Fits(c.Cost, r.Terms) {
			r.violated |= 1 << i
		}
	}
}

// commit charges what fits, and writes the receipts into the reply.
func (r *run) commit(charges []Charge, reply []int64) {
	for i := range charges {
		c := &charges[i]
		if r.violated&(1<<i) != 0 || c.Cost == (Cost{}) {
			continue
		}
		receipt := c.State.Commit(c.Cost, r.Terms)
		if c.Kept != nil {
			c.keep(r.now, receipt)
		}
		reply[c.end-1] = receipt
		r.changed |= 1 << i
	}
}

// correct does to charge i what an operation says whose reply is the verdict alone.
func (r *run) correct(i int, c *Charge) {
	var ended, changed bool
	switch r.Operation {
	case Give:
		changed = c.Limit.Find(c.State, r.now)
		if c.State.Give(c.Cost, c.Receipt) {
			r.verdict++
			changed = true
		}
	case Settle:
		ended, changed = c.settle(r.now)
	case Renew:
		ended = c.renew(r.now)
	case Adjust:
		r.verdict, changed = c.correct(r.now)
	case AtLeast:
		r.verdict, changed = c.atLeast(r.now)
	case Ask:
		if c.Adjustments.Seeded <= r.now {
			r.verdict = -r.now
		}
	}
	if ended {
		r.verdict |= 1 << i
	}
	if changed {
		r.changed |= 1 << i
	}
}
