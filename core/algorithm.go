package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// Never is the wait of a Result for what waiting does not bring, such as a cost above the burst.
const Never = algorithm.Never

// Algorithm is a limit and how it is counted: [TokenBucket], [LeakyBucket], [FixedWindow], [SlidingWindow],
// [SlidingLog], [Calendar], [Unlimited] or [DenyAll]. The types are plain data.
type Algorithm interface {
	// compile validates the limit.
	compile() (compiled, error)
}

// compiled is a validated algorithm.
type compiled struct {
	limit    algorithm.Limit     // nil where no state is needed, and of a calendar
	calendar *algorithm.Calendar // whose limit changes with the time
	denies   bool                // where both are nil
}

// current is the limit that holds now, nil where no state is needed.
func (c *compiled) current() algorithm.Limit {
	if c.calendar != nil {
		return c.calendar.Current()
	}
	return c.limit
}

// at is the limit that holds at now, where state is needed.
func (c *compiled) at(now int64) algorithm.Limit {
	if c.calendar != nil {
		return c.calendar.Current().At(now)
	}
	return c.limit
}

// counted returns a limit as compile does.
func counted(name string, limit algorithm.Limit, err error) (compiled, error) {
	if err != nil {
		return compiled{}, prefixed(name+".", err)
	}
	return compiled{limit: limit}, nil
}

// TokenBucket allows Burst tokens at once and refills Rate tokens in every period Per, evenly. In any window of length
// w it admits at most Burst + Rate·w/Per, and what is given back there of charges made before the window. So PerMinute(100)
// admits up to 199 requests in its first minute. It is exact at any rate: no interval is ever rounded.
//
// At Rate 0 and Per 0 the bucket never refills. Such a key lives in Redis for 100 years, or until it is reset.
//
// The state of a key is the time until its bucket is full, which another rate or burst leaves as it is. A bucket that takes
// less time to refill therefore denies until what was spent has drained to its own capacity. At Rate 0 the state is the
// count. Between Rate 0 and other rates a key starts anew.
type TokenBucket struct {
	Rate  int64         // tokens in each period; at most 2^42
	Per   time.Duration // the period
	Burst int64         // tokens of a full bucket, at most 2^53 - 1, or 10^15 at Rate 0; it takes at most 100 years to refill
}

// PerSecond returns a bucket of n tokens that refills n a second. It admits n at once and up to 2n - 1 in the first second. Use
// AnySecond if no second may see more than n.
func PerSecond(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Second, Burst: n} }

// PerMinute returns a bucket of n tokens that refills n a minute. It admits n at once and up to 2n - 1 in the first minute.
// Use AnyMinute if no minute may see more than n.
func PerMinute(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Minute, Burst: n} }

// PerHour returns a bucket of n tokens that refills n an hour. It admits n at once and up to 2n - 1 in the first hour. Use
// AnyHour if no hour may see more than n.
func PerHour(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Hour, Burst: n} }

func (b TokenBucket) compile() (compiled, error) {
	limit, err := algorithm.NewTokenBucket(b.Rate, b.Per, b.Burst)
	return counted("TokenBucket", limit, err)
}

// LeakyBucket holds Capacity units and leaks Rate of them in every period Per, evenly. As a meter, by
// Decide, it admits what fits into the bucket: as a TokenBucket of the same numbers does. As a queue, by Reserve
// and Wait, it hands out departure times: a reservation leaves when all before it have leaked, and one that does not fit
// into the bucket is denied. Departures are never closer than the rate allows, unless reservations are cancelled: the
// others keep their departure times, and a new one may get the time of one of them. A changed rate or capacity means what
// it does for a TokenBucket.
type LeakyBucket struct {
	Rate     int64         // units that leak in each period; at most 2^42
	Per      time.Duration // the period
	Capacity int64         // units of a full bucket, at most 2^53 - 1; it takes at most 100 years to leak
}

func (b LeakyBucket) compile() (compiled, error) {
	limit, err := algorithm.NewLeakyBucket(b.Rate, b.Per, b.Capacity)
	return counted("LeakyBucket", limit, err)
}

// Unlimited allows everything and keeps no state.
type Unlimited struct{}

func (Unlimited) compile() (compiled, error) { return compiled{}, nil }

// DenyAll denies everything for ever and keeps no state: waiting does not help.
type DenyAll struct{}

func (DenyAll) compile() (compiled, error) { return compiled{denies: true}, nil }

// prefixed puts the prefix before each of joined errors.
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
