package core

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// Never is the RetryAfter of a request that no wait can admit, such as one with a cost above the
// burst. It is the largest Duration and prints as 2562047h47m16.854775807s, so compare a wait with
// Never before you print it or add to it.
const Never = algorithm.Never

// Algorithm is a limit and the way in which it is counted: a [TokenBucket], [LeakyBucket],
// [FixedWindow], [SlidingWindow], [SlidingLog], [Calendar], [Block], [Unlimited] or [DenyAll]. All
// are plain data and used by value, not by pointer.
type Algorithm interface {
	// compile validates the limit. Its errors begin with the name of a field.
	compile() (compiled, error)
}

// Plan is the limits of one customer. Ask for it once a request, and read every limit of the
// request from that one value, so that a plan that changes meanwhile decides no request by half:
//
//	d, err := gate.Decide(ctx,
//		core.Charge{Policy: minute, Key: key, Limit: plan.Algorithm("minute")},
//		core.Charge{Policy: month, Key: key, Limit: plan.Algorithm("month")},
//	)
//
// A nethttp.Guard does so for its rules and caps if it has a nethttp.Config.Plan. There a nil Plan
// leaves every policy and every cap its own limits. Package plans has Plans of a file, with
// overrides, and with chains of tenants such as organisation, team and user.
//
// A Plan is immutable and safe for concurrent use. When the limit of a key changes, each Algorithm
// says what becomes of the units that are spent. A limit of another Algorithm starts anew.
type Plan interface {
	// Algorithm returns the limit that the customer has under the policy of this name. Nil is the
	// limit of the policy. Algorithm is for the Limit of a Charge, and of an Adjustment, which
	// therefore corrects the count that the charges of the same plan spend.
	Algorithm(policy string) Algorithm

	// Cap returns how many slots of the cap of this name the customer may hold, and the share and
	// the floor by which the customer divides the slots of the cap before it with other customers.
	// Zero leaves the cap its own number.
	Cap(name string) (limit, share, floor int64)
}

// compiled is a validated algorithm.
type compiled struct {
	limit    algorithm.Limit     // nil for a calendar and without state
	calendar *algorithm.Calendar // its limit changes with the time
	denies   bool                // everything, if both are nil
}

// compile validates a limit. An error names the algorithm.
func compile(a Algorithm) (compiled, error) {
	c, err := a.compile()
	if err != nil {
		return compiled{}, prefixed(typeOf(a)+".", err)
	}
	return c, nil
}

// typeOf returns the name of the type of an algorithm, such as "TokenBucket".
func typeOf(a Algorithm) string { return strings.TrimPrefix(fmt.Sprintf("%T", a), "core.") }

// counted returns a compiled limit that is not of a calendar.
func counted(limit algorithm.Limit, err error) (compiled, error) {
	return compiled{limit: limit}, err
}

// TokenBucket admits Burst tokens at once and refills Rate tokens in each period Per, evenly. In
// any window of length w it admits at most Burst + Rate·w/Per. So PerMinute(100) admits up to 199
// requests in its first minute. Refunds add to that bound if the charge was made before the window
// and is refunded in it. The bucket is exact at any rate: no interval is rounded.
//
// With Rate 0 the bucket never refills. Its keys live in Redis for 100 years, or until they are
// reset. With a Per besides, which suits sessions, a key is forgotten that long after its last
// charge, also while a Reservation of it runs. A denial is no charge. The RetryAfter of an empty
// bucket is Never, although it is full again when it is forgotten.
//
// The state of a key is the time at which its bucket is full again. Another rate or burst leaves
// that as it is, so a bucket that refills in less time denies until the spent tokens have drained
// to its own capacity. With Rate 0 the state is the count. A key starts again when its limit
// changes between Rate 0 and another rate.
type TokenBucket struct {
	Rate int64 // tokens in each period; at most 2^42
	// Per is the period of Rate. With Rate 0 it is the time after which a key is forgotten: of whole
	// microseconds, from a millisecond to 25 years, or 0 for 100 years.
	Per time.Duration
	// Burst is the number of tokens of a full bucket, at most 2^53 - 1, or 10^15 with Rate 0. They
	// take at most 100 years to refill.
	Burst int64
}

// PerSecond returns a bucket of n tokens that refills n a second. It admits n at once and up to 2n
// - 1 in the first second. Use AnySecond if no second may see more than n.
func PerSecond(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Second, Burst: n} }

// PerMinute returns a bucket of n tokens that refills n a minute. It admits n at once and up to 2n
// - 1 in the first minute. Use AnyMinute if no minute may see more than n.
func PerMinute(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Minute, Burst: n} }

// PerHour returns a bucket of n tokens that refills n an hour. It admits n at once and up to 2n - 1
// in the first hour. Use AnyHour if no hour may see more than n.
func PerHour(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Hour, Burst: n} }

func (b TokenBucket) compile() (compiled, error) {
	if b.Rate == 0 {
		return counted(algorithm.NewGrant(b.Burst, b.Per))
	}
	return counted(algorithm.NewTokenBucket(b.Rate, b.Per, b.Burst))
}

// LeakyBucket holds Capacity units and leaks Rate of them in each period Per, evenly. With Decide
// it is a meter: it admits what fits into the bucket, as a TokenBucket of the same numbers does.
// With Gate.Reserve and Limiter.Wait it is a queue: each reservation may act when all before it
// have leaked, and one that does not fit is denied. Reservations act no closer to each other than
// the rate allows. The exception is a cancelled reservation: the others keep their times, and a new
// one may get the time of one of them. A changed rate or capacity has the effect that it has on a
// TokenBucket.
type LeakyBucket struct {
	Rate int64         // units that leak in each period; at most 2^42
	Per  time.Duration // the period of Rate
	// Capacity is the number of units of a full bucket, at most 2^53 - 1. They take at most 100
	// years to leak.
	Capacity int64
}

func (b LeakyBucket) compile() (compiled, error) {
	return counted(algorithm.NewLeakyBucket(b.Rate, b.Per, b.Capacity))
}

// Unlimited admits everything and keeps no state.
type Unlimited struct{}

func (Unlimited) compile() (compiled, error) { return compiled{}, nil }

// DenyAll denies everything and keeps no state. RetryAfter is Never.
type DenyAll struct{}

func (DenyAll) compile() (compiled, error) { return compiled{denies: true}, nil }

// prefixed puts a prefix in front of an error, or of each of several joined ones.
func prefixed(prefix string, err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s%w", prefix, err)
	}
	var errs []error
	for _, e := range joined.Unwrap() {
		errs = append(errs, prefixed(prefix, e))
	}
	return errors.Join(errs...)
}
