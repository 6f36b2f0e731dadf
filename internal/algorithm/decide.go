package algorithm

// Run decides one request at now and appends the reply: the verdict and, unless the operation
// Corrects, each charge's reply, the Raises of each that adjusts, and of each with a HoldFor how many
// units were held. The charges have different states. Bit i of changed is set if charge i changed its
// State. AtMost sets each charge's cost to what was charged. At first Run raises the limits, and refunds
// the holds that have ended. If a key is to be seeded before, the reply is Unseeded and nothing changes.
func Run(now int64, terms Terms, charges []Charge, reply []int64) (_ []int64, changed uint32) {
	r := run{now: now, Terms: terms}
	for i := range charges {
		r.beside = r.beside || charges[i].Beside()
	}
	if r.beside {
		if unseeded := r.raise(charges); unseeded && r.Op.Seeds() {
			return append(reply, Unseeded), 0
		}
		r.giveEnded(charges)
	}
	head := len(reply)
	reply = append(reply, 0)
	if !r.Op.Corrects() {
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
	beside            bool // a state has holds or adjustments beside it, which few requests have
	verdict           int64
	violated, changed uint32 // a bit for each charge
	denied            bool   // by a charge that is no shadow
}

// decide checks every charge, then commits every charge, all or nothing, and appends the replies.
func (r *run) decide(charges []Charge, reply []int64) []int64 {
	head := len(reply) - 1
	reply = r.check(charges, reply)
	if r.Op == AtMost {
		r.multiply(charges)
	}
	if r.Op != Peek && !r.denied {
		r.commit(charges, reply[head:])
	}
	if r.beside {
		reply = r.replyBeside(charges, reply)
	}
	return reply
}

// replyBeside appends the Raises of each charge that adjusts, and of each with a HoldFor how many units
// were held.
func (r *run) replyBeside(charges []Charge, reply []int64) []int64 {
	for i := range charges {
		if c := &charges[i]; c.Adjusts {
			reply = c.Adjustments.tell(r.now, reply)
		}
	}
	for i := range charges {
		if c := &charges[i]; c.HoldFor > 0 {
			reply = append(reply, c.held)
		}
	}
	return reply
}

// raise raises the limits. It reports whether a key is to be seeded before it is charged.
func (r *run) raise(charges []Charge) (unseeded bool) {
	for i := range charges {
		if c := &charges[i]; c.Adjusts {
			c.Limit = QuotaOf(c.Limit).Raised(c.Adjustments.at(r.now), nil)
			unseeded = unseeded || c.Seeds && c.Adjustments.Seeded <= r.now
		}
	}
	return unseeded
}

// giveEnded gives back the holds that have ended, at most maxExpired of all states.
func (r *run) giveEnded(charges []Charge) {
	room := maxExpired
	for i := range charges {
		if c := &charges[i]; c.HoldFor > 0 && r.expire(c, &room) {
			r.changed |= 1 << i
		}
	}
}

// check finds the states, appends the replies, and notes which charges do not fit. AtMost and Force
// have no such charge. The verdict is their bits.
func (r *run) check(charges []Charge, reply []int64) []int64 {
	must := r.Op != AtMost && r.Op != Force
	head := len(reply) - 1
	for i := range charges {
		c := &charges[i]
		if c.Limit.Find(c.State, r.now) {
			r.changed |= 1 << i
		}
		begin := len(reply)
		reply = c.State.Reply(c.Cost, reply)
		c.end = len(reply) - head
		if c.HoldFor > 0 {
			c.held = c.Holds.units(c.Limit, reply[begin:])
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
		r.hold(c, receipt)
		reply[c.end-1] = receipt
		r.changed |= 1 << i
	}
}

// correct does to charge i what an operation says whose reply is the verdict alone.
func (r *run) correct(i int, c *Charge) {
	var ended, changed bool
	switch r.Op {
	case Give:
		changed = c.Limit.Find(c.State, r.now)
		if c.State.Give(c.Cost, c.Receipt) {
			r.verdict++
			changed = true
		}
	case Settle:
		ended, changed = r.settle(c)
	case Renew:
		ended = r.renew(c)
	case Adjust:
		r.verdict, changed = r.adjust(c)
	case AtLeast:
		r.verdict, changed = r.atLeast(c)
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
