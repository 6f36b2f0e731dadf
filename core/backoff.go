package core

import (
	"math/rand/v2"
	"time"
)

// Backoff returns the wait after the given number of tries, from 1, or false to give up. It must be
// safe for concurrent use.
type Backoff func(tries int) (wait time.Duration, ok bool)

// ConstantBackoff waits the same time after every try. It gives up after that many tries, or never
// at 0.
func ConstantBackoff(every time.Duration, maxTries int) Backoff {
	return func(tries int) (time.Duration, bool) { return every, maxTries == 0 || tries < maxTries }
}

// ExponentialBackoff doubles the wait after every try, up to a longest, and waits between half and
// all of it, so that callers do not ask all at once. It gives up after that many tries, or never at
// 0.
func ExponentialBackoff(first, longest time.Duration, maxTries int) Backoff {
	return func(tries int) (time.Duration, bool) {
		wait := first
		for i := 1; i < tries && wait < longest; i++ {
			wait *= 2
		}
		wait = min(wait, longest)
		jitter := time.Duration(rand.Int64N(int64(max(wait, 1))/2 + 1))
		return wait - jitter, maxTries == 0 || tries < maxTries
	}
}

// DecayingBackoff shortens the wait after every try by a quarter, from a first one towards a floor,
// so that callers that have waited long ask more often. It gives up after that many tries, or never
// at 0.
func DecayingBackoff(first, floor time.Duration, maxTries int) Backoff {
	return func(tries int) (time.Duration, bool) {
		above := first - floor
		for i := 1; i < tries && above > 0; i++ {
			above = above * 3 / 4
		}
		return floor + max(0, above), maxTries == 0 || tries < maxTries
	}
}
