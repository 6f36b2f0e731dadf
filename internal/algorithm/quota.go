package algorithm

import "time"

// Raise is units by which a quota is raised until that many microseconds after a reply.
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

// QuotaOf returns a limit as a quota, or nil if it is none. A quota counts units and gives none back before
// its period ends. What is used of it can be corrected, and its limit can be raised for single keys.
func QuotaOf(l Limit) *FixedWindow {
	if f, ok := l.(*FixedWindow); ok && !f.fromFirst {
		return f
	}
	return nil
}

// PeriodOf returns the quota as it holds at a time, and the period then, in microseconds. The
// period is 0 and 0 if the quota has none.
func PeriodOf(f *FixedWindow, at int64) (then *FixedWindow, from, until int64) {
	switch {
	case f.grant:
		return f, 0, 0
	case f.calendar == nil:
		from = at - at%f.width
		return f, from, from + f.width
	case at < f.start || at >= f.finish:
		f = f.calendar.make(at)
	}
	return f, f.start, f.finish
}

// Span is the period for which a quota counts units, as a reply tells it.
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
// is no quota, or a window of less than a minute.
func SpanOf(l Limit, reply []int64) (s Span, ok bool) {
	q := QuotaOf(l)
	switch {
	case q == nil:
		return Span{}, false
	case q.grant:
		return Span{Left: q.width}, true
	}
	s = Span{Start: reply[3] - q.width, Width: q.width, Left: reply[1]}
	return s, q.width >= time.Minute.Microseconds()
}
