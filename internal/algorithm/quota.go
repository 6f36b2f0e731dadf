package algorithm

import "time"

// Span is the period for which a Quota counts units, as a reply tells it.
type Span struct {
	// Start is when the period starts, in microseconds since 1970. It is -1 if that is not known.
	Start int64
	// Width is how long the period lasts, in microseconds. It is 0 if it never ends.
	Width int64
	// Left is how long the period lasts from the reply on, in microseconds.
	Left int64
}

// SpanOf returns the period of the reply to a charge under a limit. It reports false if the limit
// is no Quota, or a window of less than a minute.
func SpanOf(l Limit, reply []int64) (s Span, ok bool) {
	switch q := QuotaOf(l).(type) {
	case *Period:
		return Span{Start: q.start, Width: q.finish - q.start, Left: reply[1]}, true
	case *FixedWindow:
		s := Span{Start: -1, Width: q.width, Left: reply[1]}
		return s, q.width >= time.Minute.Microseconds()
	case *TokenBucket:
		return Span{}, true
	}
	return Span{}, false
}
