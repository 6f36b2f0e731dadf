package core

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

const (
	denialSets = 2048 // of two denials each
	denialKeys = 1024 // keys whose hashes leave the same rest are lifted together
	// denialLasts is short: another process may refund, reset or raise a limit, and a decision under
	// a limit of another width may end a window.
	denialLasts  = time.Second
	denialMixing = 0x9e3779b97f4a7c15
)

// denialCache remembers denials that only time can lift, and answers equal requests until then. A
// denial is found by all of its charges, costs and limits. It is void once this process resets one
// of its keys or refunds to one.
//
// A nil cache remembers nothing.
type denialCache struct {
	clock func() time.Duration // never goes back
	sets  [denialSets][2]atomic.Pointer[pastDenial]
	until atomic.Int64 // by the clock: no denial holds any more

	// Lifts are numbered. A denial is void if it was asked for before the last lift of one of its
	// keys.
	lastLift atomic.Int64
	lifts    [denialKeys]lift
}

// lift counts the resets and refunds of this process on some keys.
type lift struct{ inFlight, last atomic.Int64 }

func newDenialCache() *denialCache {
	return &denialCache{clock: fromNow()}
}

// fromNow returns a clock that starts at 0 and never goes back.
func fromNow() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// moment is a time at which Redis was asked.
type moment struct {
	at   time.Duration
	lift int64 // the last one before
}

// pastDenial is a denial by Redis. It is immutable.
type pastDenial struct {
	charges  []Charge
	limits   []*limit // of the charges
	keys     []uint64 // hashes
	asked    moment
	told     time.Duration // when the answer came
	until    time.Duration // Redis gives the same answer before that
	decision Decision
}

// keep remembers the decision on an inquiry if it is a denial that only time lifts, and the blocks
// of its keys, which deny whatever else is charged with them.
func (c *denialCache) keep(p *inquiry, d *Decision, charges []Charge) {
	if c == nil || d.Source != SourceRedis || len(p.wire) == 0 {
		return
	}
	for i := range charges {
		r := d.at(i)
		if r.Policy.blocks && r.denies() {
			one := Decision{Source: d.Source, n: 1, first: *r}
			c.put(p, charges[:i+1], i, NoCost, &one)
		}
	}
	if p.op == algorithm.Decide {
		c.put(p, charges, 0, charges[0].Cost, d)
	}
}

// put remembers a denial of the charges of an inquiry behind the first ones. The first of them had
// that cost.
func (c *denialCache) put(p *inquiry, charges []Charge, from int, cost int64, d *Decision) {
	wait := d.unchanged()
	if wait == 0 { // a slot is missing, or something is left that others may spend
		return
	}
	k := &pastDenial{
		charges:  withoutParts(charges[from:]),
		limits:   make([]*limit, len(charges)-from),
		asked:    p.began,
		decision: *d,
	}
	k.charges[0].Cost = cost
	for i := range k.limits {
		a := &charges[from+i]
		k.limits[i], _ = a.Policy.limitOf(a.Limit) // the inquiry has found it
		if at := p.place[from+i]; at >= 0 {
			one := &p.wire[at]
			if grant := algorithm.QuotaOf(one.Limit); grant != nil && grant.Forgets() {
				return // no reply tells when it is forgotten
			}
			k.keys = append(k.keys, one.StateHash())
		}
	}
	// Redis decided between began and told. The denial ends counted from began, and its waits count
	// from told, so that it neither denies a request that has room nor names a wait that is too
	// short.
	k.told = c.clock()
	k.until = p.began.at + min(wait, denialLasts)
	set := c.set(k.charges)
	place := &set[0]
	if first := set[0].Load(); first != nil && !first.of(k.charges) {
		if second := set[1].Load(); second == nil || second.of(k.charges) || second.until < first.until {
			place = &set[1]
		}
	}
	place.Store(k)
	atLeast(&c.until, int64(k.until))
}

// atLeast raises a number to n.
func atLeast(number *atomic.Int64, n int64) {
	for old := number.Load(); old < n && !number.CompareAndSwap(old, n); {
		old = number.Load()
	}
}

// withoutParts returns the charges without the parts of their keys, which have no bound.
func withoutParts(charges []Charge) []Charge {
	// Not slices.Clone, whose result the compiler takes for a part of charges: they would escape.
	bounded := append([]Charge(nil), charges...)
	for i := range bounded {
		bounded[i].Key.given = ""
	}
	return bounded
}

// unchanged returns how long a denial and its waits stay true whatever others spend: as long as
// nothing is left of the keys that deny, because spending what is left makes the waits longer. A
// wait of Never stays true for ever.
func (d *Decision) unchanged() time.Duration {
	wait := d.RetryAfter()
	if wait == Never {
		return denialLasts
	}
	for i := range d.n {
		r := d.at(i)
		if !r.denies() {
			continue
		}
		if r.Remaining > 0 {
			return 0
		}
		wait = min(wait, r.NextAfter)
		if r.kept > 0 {
			wait = min(wait, r.RetryAfter) // another estimate follows
		}
	}
	return wait
}

// known fills in and reports the decision on charges if a remembered denial holds, and returns
// whether one does. Otherwise the decision begins now. Of a Reserve only blocks are known: it may be
// for later.
func (g *Gate) known(
	ctx context.Context, op algorithm.Operation, charges []Charge, d *Decision,
) (now moment, known bool) {
	if g.cache == nil {
		return now, false
	}
	now = moment{g.cache.clock(), g.cache.lastLift.Load()}
	return now, int64(now.at) < g.cache.until.Load() && g.answer(ctx, op, charges, d, now.at)
}

// answer is known while some remembered denial holds.
func (g *Gate) answer(
	ctx context.Context, op algorithm.Operation, charges []Charge, d *Decision, now time.Duration,
) bool {
	asks := op == algorithm.Decide || op == algorithm.Reserve // others look at what is there now
	if !asks || g.closed.Load() || ctx.Err() != nil {
		return false
	}
	var start time.Time
	if g.cfg.Observe != nil {
		start = time.Now()
	}
	denied := op == algorithm.Decide && g.cache.answer(charges, d, now)
	if !denied && !g.cache.blocks(charges, d, now) {
		return false
	}
	g.tellDecision(ctx, op, d, charges, nil, start)
	return true
}

// answer fills in the decision on charges if a remembered denial holds, and returns whether one
// does.
func (c *denialCache) answer(charges []Charge, d *Decision, now time.Duration) bool {
	set := c.set(charges)
	for i := range set {
		k := set[i].Load()
		if k == nil || !k.of(charges) {
			continue
		}
		if now < k.until && !c.void(k) && k.holds(charges) {
			k.tell(now, d)
			return true
		}
	}
	return false
}

// lifting is called before keys are reset or refunded to, and the function that it returns after
// that. In between the cache answers nothing about these keys. Afterwards it answers nothing that
// was asked for before, even if that answer came later.
func (c *denialCache) lifting(keys ...uint64) (lifted func()) {
	if c == nil || len(keys) == 0 {
		return func() {}
	}
	for _, k := range keys {
		c.lifts[k%denialKeys].inFlight.Add(1)
	}
	return func() {
		for _, k := range keys {
			l := &c.lifts[k%denialKeys]
			atLeast(&l.last, c.lastLift.Add(1))
			l.inFlight.Add(-1)
		}
	}
}

// lifts reports whether a request refunds, settles or adjusts a charge, or reserves it for later, which
// changes the waits of denials. To reserve a charge that only asks changes nothing.
func lifts(r *request.Request, c *request.Charge) bool {
	switch r.Op {
	case algorithm.Give, algorithm.Force, algorithm.Settle, algorithm.Adjust, algorithm.AtLeast:
		return true
	case algorithm.Reserve:
		return r.Bound > 0 && c.Units > 0
	}
	return false
}

func (c *denialCache) void(k *pastDenial) bool {
	for _, n := range k.keys {
		if l := &c.lifts[n%denialKeys]; l.inFlight.Load() > 0 || l.last.Load() > k.asked.lift {
			return true
		}
	}
	return false
}

func (c *denialCache) set(charges []Charge) *[2]atomic.Pointer[pastDenial] {
	h := uint64(0)
	for i := range charges {
		a := &charges[i]
		if a.Policy == nil {
			continue // an error, which is not remembered
		}
		h = (h^a.Key.in.KeyHash^a.Policy.hash)*denialMixing + uint64(a.units())
	}
	return &c.sets[h%denialSets]
}

// of reports whether the charges are those that were denied, whatever their limits are.
func (k *pastDenial) of(charges []Charge) bool {
	return slices.EqualFunc(k.charges, charges, func(a, b Charge) bool {
		return a.Policy == b.Policy && a.Key.in.Path == b.Key.in.Path &&
			a.units() == b.units() && a.Clamp == b.Clamp
	})
}

// holds reports whether the limits of the charges are those that they were denied under.
func (k *pastDenial) holds(charges []Charge) bool {
	for i, before := range k.limits {
		c := &charges[i]
		if now, err := c.Policy.limitOf(c.Limit); err != nil || now != before {
			return false
		}
	}
	return true
}

// tell fills in the decision as it is now. All that is known of a key is this: if nothing was left,
// nothing is left until NextAfter.
func (k *pastDenial) tell(now time.Duration, d *Decision) {
	d.Source = SourceCache
	d.resize(k.decision.n)
	asked := now - k.asked.at
	told := now - k.told
	less := func(wait time.Duration) time.Duration {
		if wait == Never {
			return wait
		}
		return max(0, wait-told)
	}
	d.later = less(k.decision.later)
	for i := range d.n {
		r := d.at(i)
		*r = *k.decision.at(i)
		r.Source = SourceCache
		if !r.Allowed && r.RetryAfter <= asked { // other charges still deny
			r.Allowed = true
			r.RetryAfter = 0
			r.violated = 0
		}
		r.RetryAfter = less(r.RetryAfter)
		r.kept = less(r.kept)
		if r.Known && r.Remaining == 0 && r.Used <= r.Limit && r.NextAfter > asked {
			r.NextAfter = less(r.NextAfter)
			r.ResetAfter = less(r.ResetAfter)
			continue
		}
		r.Known = false
		r.Used = 0
		r.Remaining = 0
		r.NextAfter = 0
		r.ResetAfter = 0
		r.Held = 0
		r.reset = 0
	}
}
