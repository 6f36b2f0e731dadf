package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// Never is the wait of a Result for what waiting does not bring, such as a cost above the burst.
const Never = algorithm.Never

// Algorithm is a limit and how it is counted: [TokenBucket], [Unlimited] or [DenyAll]. The types are plain data.
type Algorithm interface {
	// compile validates the limit. It returns nil and no fault for one that needs no state.
	compile() (algorithm.Limit, error)
}

// TokenBucket allows Burst tokens at once and refills Rate tokens in every period Per, evenly. In any window of length
// w it admits at most Burst + Rate·w/Per. It is exact at any rate: no interval is ever rounded.
//
// At Rate 0 and Per 0 the bucket never refills. Such a key lives in Redis for 100 years, or until it is reset.
type TokenBucket struct {
	Rate  int64         // tokens in each period; at most 2^42
	Per   time.Duration // the period
	Burst int64         // tokens of a full bucket, at most 2^53 - 1; it takes at most 100 years to refill
}

// PerSecond is n tokens each second, with a burst of n.
func PerSecond(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Second, Burst: n} }

// PerMinute is n tokens each minute, with a burst of n.
func PerMinute(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Minute, Burst: n} }

// PerHour is n tokens each hour, with a burst of n.
func PerHour(n int64) TokenBucket { return TokenBucket{Rate: n, Per: time.Hour, Burst: n} }

func (b TokenBucket) compile() (algorithm.Limit, error) {
	limit, err := algorithm.NewTokenBucket(b.Rate, b.Per, b.Burst)
	if err != nil {
		return nil, prefixed("TokenBucket.", err)
	}
	return limit, nil
}

// Unlimited allows everything and keeps no state.
type Unlimited struct{}

func (Unlimited) compile() (algorithm.Limit, error) { return nil, nil }

// DenyAll denies everything for ever and keeps no state: waiting does not help.
type DenyAll struct{}

func (DenyAll) compile() (algorithm.Limit, error) { return nil, nil }

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
