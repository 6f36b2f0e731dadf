package algorithm

import (
	"cmp"
	"time"
)

// Quota is a limit that counts units and gives none back before its period ends. What is used of it
// can be corrected, and its limit can be raised for single keys.
type Quota interface {
	Limit
	// Raised returns the limit with that many units more, of which the raises will end.
	Raised(units int64, raises Raises) Limit
	// Later returns the first wait, at least from, after which n units fit, Never if there is none. The
	// reply is one to a charge under the limit.
	Later(reply []int64, n int64, from time.Duration) time.Duration
}

// Raise is units by which a Quota is raised until that many microseconds after a reply.
type Raise struct{ Left, Units int64 }

// Raises are all of one key.
type Raises []Raise

// After returns by how many units the limit is raised after a wait, in microseconds.
func (r Raises) After(wait int64) (units int64) {
	for _, one := range r {
		if one.Left > wait {
			units += one.Units
		}
	}
	return units
}

// ended returns the units of the raises that have ended after a wait.
func (r Raises) ended(wait int64) int64 { return r.After(0) - r.After(wait) }

// QuotaOf returns a limit as a Quota, or nil if it is none.
func QuotaOf(l Limit) Quota {
	switch q := l.(type) {
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
	f, ok := q.(*FixedWindow)
	switch {
	case !ok:
		return q, 0, 0
	case f.calendar == nil:
		from = at - at%f.width
		return f, from, from + f.width
	case at < f.start || at >= f.finish:
		f = f.calendar.make(at)
	}
	return f, f.start, f.finish
}

// Span is the period for which a Quota counts units, as a reply tells it.
type Span struct {
	// Start is when the period starts, in microseconds since 1970. It is 0 if it never ends.
	Start int64
	// Width is how long the period lasts, in microseconds. It is 0 if it never ends.
	Width int64
	// Left is how long the period lasts from the reply on, in microseconds, or how long a charge then
	// counts if the period never ends.
	Left int64
}

// SpanOf returns the period of the reply to a charge under a limit. It reports false if the limit
// is no Quota, or a window of less than a minute.
func SpanOf(l Limit, reply []int64) (s Span, ok bool) {
	switch q := QuotaOf(l).(type) {
	case *FixedWindow:
		s = Span{Start: reply[3] - q.width, Width: q.width, Left: reply[1]}
		return s, q.width >= time.Minute.Microseconds()
	case *TokenBucket:
		return Span{Left: cmp.Or(q.lifetime, longest)}, true
	}
	return Span{}, false
}
