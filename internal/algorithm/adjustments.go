package algorithm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Quota is a limit that counts units and gives none back before its period ends. What is used of it
// can be corrected, and its limit can be raised for single keys.
type Quota interface {
	Limit
	// Raised returns the limit with that many units more.
	Raised(units int64) Limit
	// periodEnds returns when the period at now ends.
	periodEnds(s State, now int64) int64
}

// QuotaOf returns a limit as a Quota, or nil if it is none.
func QuotaOf(l Limit) Quota {
	switch q := l.(type) {
	case *Period:
		return q
	case *FixedWindow:
		if !q.fromFirst {
			return q
		}
	case *TokenBucket:
		if q.frozen {
			return q
		}
	}
	return nil
}

// PeriodOf returns the quota as it holds at a time, and the period then, in microseconds. The
// period is 0 and 0 if the quota has none.
func PeriodOf(q Quota, at int64) (then Quota, from, until int64) {
	switch q := q.(type) {
	case *Period:
		if at < q.start || at >= q.finish {
			q = q.calendar.make(at)
		}
		return q, q.start, q.finish
	case *FixedWindow:
		from = at - at%q.width
		return q, from, from + q.width
	}
	return q, 0, 0
}

// AnyReceipt is the receipt by which Give takes units from a Quota whoever spent them.
// It is not -1, which is no receipt.
const AnyReceipt = -2

// Unseeded is the reply to a request with a key that is to be seeded first, and a verdict of
// Adjust.
const Unseeded = -2

// idsEnd is the time, in microseconds, of which ids are known until a multiple: so they end
// together, and few decisions drop some.
const idsEnd = 86_400_000_000

// The verdicts of Adjust that change nothing.
const (
	AdjustedBefore = 0  // the id is known
	RaisedTooFar   = -3 // all raises exceed MaxCount
	RaiseEnded     = -4 // the end of the raise has passed
)

// Adjustment is what Adjust and AtLeast change. Times are in microseconds.
type Adjustment struct {
	// From and Until bound the period for which it is meant. They are 0 for any.
	From, Until int64
	ID          string // of Adjust
	Keep        int64  // how long the id is known
	// Units are charged by Adjust, or given back if they are negative. AtLeast raises what is used
	// to them.
	Units int64
	Raise int64 // units by which Adjust raises the limit
	Ends  int64 // when the raise ends
	Seeds Seeding
}

// Seeding says whether AtLeast makes the key a seeded one.
type Seeding uint8

// The kinds of Seeding.
const (
	SeedsNot   Seeding = iota
	SeedsAgain         // also a key that is seeded
	SeedsFirst         // AtLeast does nothing to a key that is seeded
)

// Adjustments are what is kept beside the state of a Quota. The zero value is none.
type Adjustments struct {
	seeded int64            // until then the key is seeded
	raises map[int64]int64  // units by their end
	ids    map[string]int64 // until when they are known
	next   int64            // the first end of a raise or an id, 0 if there is none
	raised int64            // units of all raises
}

// Empty reports whether there are none.
func (a *Adjustments) Empty() bool {
	return a == nil || a.seeded == 0 && len(a.raises)+len(a.ids) == 0
}

// Expires returns when none counts any more.
func (a *Adjustments) Expires() int64 {
	if a.Empty() {
		return 0
	}
	last := a.seeded
	for ends := range a.raises {
		last = max(last, ends)
	}
	for _, ends := range a.ids {
		last = max(last, ends)
	}
	return last
}

// Value returns the fields that a store keeps, in order.
func (a *Adjustments) Value() string {
	if a.Empty() {
		return ""
	}
	var fields []string
	add := func(format string, args ...any) { fields = append(fields, fmt.Sprintf(format, args...)) }
	for id, ends := range a.ids {
		add("id:%s %d", id, ends)
	}
	for ends, units := range a.raises {
		add("to:%d %d", ends, units)
	}
	if a.seeded > 0 {
		add("seeded %d", a.seeded)
	}
	if a.next > 0 {
		add("raised %d %d", a.next, a.raised)
	}
	slices.Sort(fields)
	return strings.Join(fields, "\n")
}

// find drops what has ended and returns by how much the limit is raised.
func (a *Adjustments) find(now int64) (raised int64) {
	if a.next > 0 && a.next <= now {
		maps.DeleteFunc(a.raises, func(ends, _ int64) bool { return ends <= now })
		maps.DeleteFunc(a.ids, func(_ string, ends int64) bool { return ends <= now })
		a.sum()
	}
	return a.raised
}

func (a *Adjustments) sum() {
	a.next, a.raised = 0, 0
	first := func(ends int64) {
		if a.next == 0 || ends < a.next {
			a.next = ends
		}
	}
	for ends, units := range a.raises {
		first(ends)
		a.raised += units
	}
	for _, ends := range a.ids {
		first(ends)
	}
}

// raise raises the limit of a charge by what its adjustments say. It reports whether the key is to
// be seeded first.
func (c *Charge) raise(now int64) (unseeded bool) {
	q := QuotaOf(c.Limit)
	c.Raised = c.Adjustments.find(now)
	c.Limit = q.Raised(c.Raised)
	return c.Seeds && c.Adjustments.seeded <= now
}

// adjust does what the Adjustment of a charge on a Quota says, and returns the verdict of the
// operation.
func (c *Charge) adjust(now int64, op Operation) (verdict int64, changed bool) {
	q, k := QuotaOf(c.Limit), c.Adjustment
	charge := func(units int64) {
		if units > 0 {
			q.Find(c.State, now)
			q.Commit(c.State, q.Cost(units), Terms{Operation: Force})
			c.Gone, changed = false, true
		}
	}
	switch a := c.Adjustments; op {
	case Ask:
		if a.seeded > now {
			return 0, false
		}
		return -now, false
	case AtLeast:
		if k.Seeds == SeedsFirst && a.seeded > now {
			return 0, false
		}
		changed = q.Find(c.State, now)
		before := q.Read(q.Reply(c.State, Cost{}, nil), Cost{}, 0).Used
		q = QuotaOf(q.Raised(max(0, k.Units-q.Capacity()))) // nothing is dropped or owed
		charge(k.Units - before)
		if k.Seeds != SeedsNot {
			a.seeded = q.periodEnds(c.State, now)
		}
		return max(0, k.Units-before), changed
	default:
		switch {
		case a.ids[k.ID] > now:
			return AdjustedBefore, false
		case k.Raise > 0 && k.Ends <= now:
			return RaiseEnded, false
		case c.Raised+k.Raise > MaxCount:
			return RaisedTooFar, false
		}
		if a.ids == nil {
			a.ids, a.raises = make(map[string]int64), make(map[int64]int64)
		}
		known := now + k.Keep
		if k.Raise > 0 {
			known = max(known, k.Ends)
			a.raises[k.Ends] += k.Raise
			q = QuotaOf(q.Raised(k.Raise))
			c.Limit = q
		}
		a.ids[k.ID] = known - known%idsEnd + idsEnd
		a.sum()
		if k.Units < 0 {
			changed = c.give(now, q.Cost(-k.Units), AnyReceipt)
		}
		charge(k.Units)
		return 1, changed
	}
}

// Raised implements Quota.
func (f *FixedWindow) Raised(units int64) Limit {
	if units == 0 {
		return f
	}
	r := *f
	r.limit += units
	return &r
}

func (f *FixedWindow) periodEnds(s State, _ int64) int64 { return s.(*window).found.finish }

// Raised implements Quota.
func (p *Period) Raised(units int64) Limit {
	if units == 0 {
		return p
	}
	r := *p
	r.limit += units
	return &r
}

// Raised implements Quota, for a bucket that never refills.
func (b *TokenBucket) Raised(units int64) Limit {
	if units == 0 {
		return b
	}
	r := *b
	r.burst += units
	r.capacity.Whole += units
	return &r
}

func (b *TokenBucket) periodEnds(_ State, now int64) int64 { return now + longest }
