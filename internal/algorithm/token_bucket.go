package algorithm

import (
	"encoding/binary"
	"errors"
	"math"
	"math/big"
	"math/bits"
	"time"
)

// TokenBucket refills one token every Per/Rate and holds at most Burst tokens. It uses the generic
// cell rate algorithm (ITU-T I.371). A token is a length of time. The state is the arrival time, at
// which the bucket is full again. The level is the time from now until then, at most the length of
// the burst.
type TokenBucket struct {
	traits
	burst           int64
	numerator       int64 // of a token's length in microseconds, in lowest terms
	token, capacity Cost  // lengths of one token and of the burst
	reach           int64 // reachOf the capacity
	queue           bool
}

// longestDebt is 10 years. It bounds the debt of a bucket that refills.
const longestDebt = longest / 10

// maxRate keeps the sum of two fractions, each below 1000 times the rate, below 2^53.
const maxRate = 1 << 42

// NewTokenBucket validates a bucket of burst tokens that refills rate tokens in every period per. It
// returns every fault at once.
func NewTokenBucket(rate int64, per time.Duration, burst int64) (*TokenBucket, error) {
	return newBucket("tb2", rate, per, "Burst", burst)
}

// NewLeakyBucket validates a bucket that leaks rate units in every period per and holds capacity
// units. It counts as a token bucket does, but its reservations form a queue: each leaves when all
// before it have leaked. NewLeakyBucket returns every fault at once.
func NewLeakyBucket(rate int64, per time.Duration, capacity int64) (*TokenBucket, error) {
	b, err := newBucket("lb2", rate, per, "Capacity", capacity)
	if err == nil {
		b.queue = true
	}
	return b, err
}

func newBucket(tag string, rate int64, per time.Duration, field string, burst int64) (*TokenBucket, error) {
	if err := errors.Join(
		faultIf(rate < 0, "Rate", "is %d: it must not be negative", rate),
		faultIf(rate == 0, "Rate", "is 0: it would never leak"),
		faultIf(rate > maxRate, "Rate", "is %d: it must be at most %d", rate, int64(maxRate)),
		faultIf(per < 0, "Per", "is %v: it must not be negative", per),
		faultIf(per == 0, "Per", "is 0: a rate needs a period (Unlimited is a limit of its own)"),
		checkLimit(field, burst, MaxUnits),
	); err != nil {
		return nil, err
	}
	b := &TokenBucket{traits: traits{tag: tag, script: "token_bucket", fields: 3}, burst: burst}
	if !b.measure(big.NewRat(int64(per), rate*int64(time.Microsecond))) {
		return nil, &Fault{field, "takes more than 100 years to refill"}
	}
	return b, nil
}

// measure sets the lengths of a token and of the burst. It reports whether they are in range.
func (b *TokenBucket) measure(token *big.Rat) bool {
	if !token.Num().IsInt64() {
		return false
	}
	b.numerator, b.denominator = token.Num().Int64(), token.Denom().Int64()
	b.token = Cost{b.numerator / b.denominator, b.numerator % b.denominator}
	b.capacity = b.token.times(b.burst, b.denominator)
	b.reach = reachOf(b.capacity.Whole)
	return b.capacity.Whole < longest
}

// Share returns the bucket for one of n processes that decide alone: the n-th part of the rate and
// of the burst, a burst of at least 1. It refills in 100 years at most. A token whose length has more
// than 64 bits takes a part of a microsecond longer.
func (b *TokenBucket) Share(n int64) Limit {
	s := *b
	s.burst = max(1, b.burst/n)
	token := big.NewRat(b.numerator, b.denominator)
	token.Mul(token, big.NewRat(n, 1))
	if !token.Num().IsInt64() {
		whole := new(big.Int).Div(token.Num(), token.Denom())
		token.SetInt(whole.Add(whole, big.NewInt(1)))
	}
	if !s.measure(token) {
		s.burst = 1
		s.measure(big.NewRat(longest-1, 1))
	}
	return &s
}

func (b *TokenBucket) Parameters(args []int64) []int64 {
	queue := int64(0)
	if b.queue {
		queue = 1
	}
	return append(args, b.denominator, b.capacity.Whole, b.capacity.Fraction, queue, b.reach)
}

// Packed returns the reach in a byte and the capacity in 7, the lowest first, as
// lua/decide/buckets.lua reads them. It is empty if that script cannot decide on the bucket: it must
// have tokens of whole microseconds. Only reservations tell a queue from a bucket.
func (b *TokenBucket) Packed() string {
	if b.denominator > 1 {
		return ""
	}
	return string(binary.LittleEndian.AppendUint64(nil, uint64(b.capacity.Whole)<<8|uint64(b.reach)))
}

func (b *TokenBucket) Capacity() int64       { return b.burst }
func (b *TokenBucket) Window() time.Duration { return b.until(b.capacity) }

func (b *TokenBucket) Cost(n int64) Cost {
	if n == 1 {
		return b.token
	}
	return b.token.times(n, b.denominator)
}

// units returns the number of tokens of a level, rounded up.
func (b *TokenBucket) units(level Cost) int64 {
	if b.denominator == 1 {
		return (level.Whole + b.numerator - 1) / b.numerator
	}
	hi, lo := bits.Mul64(uint64(level.Whole), uint64(b.denominator))
	lo, carry := bits.Add64(lo, uint64(level.Fraction), 0)
	if hi += carry; hi >= uint64(b.numerator) {
		return math.MaxInt64 // another limit with far longer tokens raised the level
	}
	n, rest := bits.Div64(hi, lo, uint64(b.numerator))
	if rest > 0 {
		n++
	}
	return int64(min(n, math.MaxInt64))
}

func (b *TokenBucket) Read(reply []int64, charged Cost, n int64) (r Reading) {
	found := Cost{reply[0], reply[1]}
	after := found.plus(charged, b.denominator)
	r.Limit, r.Window, r.Used = b.burst, b.Window(), b.units(after)
	r.Remaining = max(0, b.burst-r.Used)
	if r.RetryAfter = Never; n <= b.burst {
		r.RetryAfter = b.room(found, n)
	}
	if r.Delay = r.RetryAfter; b.queue && n > 0 {
		r.Delay = b.until(found)
	}
	if r.Used > 0 {
		r.NextAfter, r.ResetAfter = b.room(after, r.Remaining+1), b.until(after)
	}
	return r
}

// room returns how long until n units fit on top of a level.
func (b *TokenBucket) room(level Cost, n int64) time.Duration {
	return b.until(level.plus(b.Cost(n), b.denominator).minus(b.capacity, b.denominator))
}

// RetryReserve returns the wait until a reservation with a delay of at most bound is admitted.
func (b *TokenBucket) RetryReserve(r Reading, bound time.Duration) time.Duration {
	switch {
	case r.RetryAfter == Never:
		return Never
	case b.queue:
		return max(r.RetryAfter, r.Delay-bound)
	}
	return r.RetryAfter - bound
}

// until returns how long a level takes to drain.
func (b *TokenBucket) until(level Cost) time.Duration {
	left := level.Whole
	if level.Fraction > 0 {
		left++
	}
	return micros(max(0, left))
}

// reachOf returns the reach of a length.
func reachOf(length int64) int64 { return int64(bits.Len64(uint64(length))) }

// After implements Mergeable.
func (b *TokenBucket) After(reply []int64, c Cost) {
	after := Cost{reply[0], reply[1]}.plus(c, b.denominator)
	reply[0], reply[1] = after.Whole, after.Fraction
}
