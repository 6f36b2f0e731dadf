package algorithm

import "time"

// Quota is the period for which a limit counts units. All processes agree on it.
type Quota struct {
	// Start is when the period starts, in microseconds since 1970. It is -1 if that is not known.
	Start int64
	// Width is how long the period lasts, in microseconds. It is 0 if it never ends.
	Width int64
	// Left is how long the period lasts from the reply on, in microseconds.
	Left int64
}

// QuotaOf returns the period of the reply to a charge under a limit. It reports false if the limit
// does not count in periods that all processes agree on: those of a calendar, aligned windows of at
// least a minute, and the one period of a bucket that never refills.
func QuotaOf(l Limit, reply []int64) (q Quota, ok bool) {
	switch l := l.(type) {
	case *Period:
		return Quota{Start: l.start, Width: l.finish - l.start, Left: reply[1]}, true
	case *FixedWindow:
		return Quota{Start: -1, Width: l.width, Left: reply[1]},
			!l.fromFirst && l.width >= time.Minute.Microseconds()
	case *TokenBucket:
		return Quota{}, l.frozen && !l.queue
	}
	return Quota{}, false
}
