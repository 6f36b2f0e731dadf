package algorithm

import (
	"errors"
	"fmt"
	"math/bits"
	"time"
)

// TokenBucket refills one token every Per/Rate and holds Burst of them at most. It is counted as the generic cell
// rate algorithm (ITU-T I.371) does: a token is a length of time, and the state is the arrival time, the instant at
// which the bucket is full again. It may be ahead of now by at most the burst's length.
type TokenBucket struct {
	burst       int64
	numerator   int64 // a token's length is numerator/denominator microseconds, in lowest terms
	denominator int64
	token       Cost
	capacity    Cost
	frozen      bool
	queue       bool
}

// furthest is the longest debt: 10 years.
const furthest = longest / 10

// maxRate keeps the sum of two fractions, each below 1000 times the rate, below 2^53.
const maxRate = 1 << 42

// NewTokenBucket validates a bucket of burst tokens, refilled at rate tokens in every period per. At rate 0
// it never refills, and per is 0 too. It returns every fault at once.
func NewTokenBucket(rate int64, per time.Duration, burst int64) (*TokenBucket, error) {
	if rate == 0 && per > 0 {
		fault := &Fault{"Rate", fmt.Sprintf("is 0 but Per is %v: a bucket that never refills has no period, and no tokens at all is DenyAll", per)}
		return nil, errors.Join(fault, checkLimit("Burst", burst, MaxUnits))
	}
	return newBucket(rate, per, "Burst", burst)
}

// NewLeakyBucket validates a bucket that leaks rate units in every period per and holds capacity units. It counts as
// the token bucket of the same numbers does, but its reservations form a queue: each leaves when all before it have
// leaked. It returns every fault at once.
func NewLeakyBucket(rate int64, per time.Duration, capacity int64) (*TokenBucket, error) {
	b, err := newBucket(rate, per, "Capacity", capacity)
	if rate == 0 {
		err = errors.Join(&Fault{"Rate", "is 0: it would never leak"}, err)
	}
	if err != nil {
		return nil, err
	}
	b.queue = true
	return b, nil
}

func newBucket(rate int64, per time.Duration, field string, burst int64) (*TokenBucket, error) {
	var faults []error
	fault := func(field, format string, args ...any) {
		faults = append(faults, &Fault{field, fmt.Sprintf(format, args...)})
	}
	switch {
	case rate < 0:
		fault("Rate", "is %d: it must not be negative", rate)
	case rate > maxRate:
		fault("Rate", "is %d: it must be at most %d", rate, int64(maxRate))
	}
	switch {
	case per < 0:
		fault("Per", "is %v: it must not be negative", per)
	case per == 0 && rate > 0:
		fault("Per", "is 0: a rate needs a period (Unlimited is a limit of its own)")
	}
	most := int64(MaxUnits)
	if rate == 0 {
		most = MaxCount
	}
	if err := checkLimit(field, burst, most); err != nil {
		faults = append(faults, err)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}

	b := &TokenBucket{burst: burst}
	if rate == 0 {
		b.freeze()
	} else {
		n, d := int64(per), rate*int64(time.Microsecond)
		g := gcd(n, d)
		b.numerator, b.denominator = n/g, d/g
	}
	if !b.measure() {
		return nil, &Fault{field, "takes more than 100 years to refill"}
	}
	return b, nil
}

// measure derives the lengths of a token and of the burst, and says whether they can be counted.
func (b *TokenBucket) measure() bool {
	hi, lo := bits.Mul64(uint64(b.burst), uint64(b.numerator))
	if hi >= uint64(b.denominator) {
		return false
	}
	whole, fraction := bits.Div64(hi, lo, uint64(b.denominator))
	b.capacity = Cost{int64(whole), int64(fraction)}
	b.token = Cost{b.numerator / b.denominator, b.numerator % b.denominator}
	return whole < uint64(longest)
}

// freeze makes a bucket that time does not refill: a token is one unit of a clock that stands still.
func (b *TokenBucket) freeze() {
	b.frozen, b.numerator, b.denominator = true, 1, 1
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Share is the bucket for one of n processes that decide alone: the n-th part of its rate and burst, but at least
// a burst of 1. A part that takes more than 100 years to refill does not refill.
func (b *TokenBucket) Share(n int64) Limit {
	s := *b
	s.burst = max(1, b.burst/n)
	if !s.frozen {
		g := gcd(b.denominator, n)
		hi, lo := bits.Mul64(uint64(b.numerator), uint64(n/g))
		s.numerator, s.denominator = int64(lo), b.denominator/g
		if hi > 0 || s.numerator < 0 || !s.measure() {
			s.freeze()
		}
	}
	s.measure()
	return &s
}

func (b *TokenBucket) Tag() string {
	switch {
	case b.queue:
		return "lb1"
	case b.frozen:
		return "tf1"
	}
	return "tb1"
}

func (b *TokenBucket) Script() string { return "token_bucket" }

func (b *TokenBucket) Parameters(args []int64) []int64 {
	denominator := b.denominator
	if b.frozen {
		denominator = 0
	}
	queue := int64(0)
	if b.queue {
		queue = 1
	}
	return append(args, denominator, b.capacity.Whole, b.capacity.Fraction, queue, b.short())
}

// Plain is the capacity of a bucket that has nothing more to say to the script, where every length is of whole microseconds.
func (b *TokenBucket) Plain() (capacity int64, ok bool) {
	return b.capacity.Whole, b.denominator == 1 && b.capacity.Fraction == 0 && !b.frozen && !b.queue
}

func (b *TokenBucket) Fields() int        { return 3 }
func (b *TokenBucket) Denominator() int64 { return b.denominator }
func (b *TokenBucket) Capacity() int64    { return b.burst }

func (b *TokenBucket) Window() time.Duration {
	if b.frozen {
		return Never
	}
	return micros(b.capacity.ceil())
}

func (b *TokenBucket) Cost(n int64) Cost {
	if n > b.burst {
		return Cost{b.capacity.Whole + 1, 0}
	}
	switch {
	case n == 1:
		return b.token
	case b.denominator == 1:
		return Cost{n * b.numerator, 0}
	}
	hi, lo := bits.Mul64(uint64(n), uint64(b.numerator))
	whole, fraction := bits.Div64(hi, lo, uint64(b.denominator))
	return Cost{int64(whole), int64(fraction)}
}

// short is 1 if a token is shorter than a microsecond: then a receipt does not tell whether more was charged since.
func (b *TokenBucket) short() int64 {
	if b.numerator < b.denominator {
		return 1
	}
	return 0
}

// tokens is how many whole tokens fit into a length, and what is left of it in parts of a microsecond.
func (b *TokenBucket) tokens(c Cost) (n, rest int64) {
	if b.denominator == 1 {
		n = c.Whole / b.numerator
		return n, c.Whole - n*b.numerator
	}
	hi, lo := bits.Mul64(uint64(c.Whole), uint64(b.denominator))
	lo, carry := bits.Add64(lo, uint64(c.Fraction), 0)
	whole, part := bits.Div64(hi+carry, lo, uint64(b.numerator))
	return int64(whole), int64(part)
}

func (b *TokenBucket) Read(reply []int64, charged Cost, n int64) (r Reading) {
	found := Cost{reply[0], reply[1]}
	b.tell(&r, found, found.plus(b.Cost(n), b.denominator), found.plus(charged, b.denominator), n)
	return r
}

// tell fills in what a backlog means to a caller who wants n tokens: what was found, with these on top, and after what was
// charged.
func (b *TokenBucket) tell(r *Reading, found, wanted, after Cost, n int64) {
	r.Limit, r.Window = b.burst, b.Window()
	var next Cost
	if after.compare(b.capacity) <= 0 {
		var rest int64
		r.Remaining, rest = b.tokens(b.capacity.minus(after, b.denominator))
		r.Used = b.burst - r.Remaining
		if next.Whole = b.numerator - rest; b.denominator > 1 {
			next.Whole = (next.Whole-1)/b.denominator + 1
		}
	} else {
		over := after.minus(b.capacity, b.denominator)
		n, rest := b.tokens(over)
		r.Used = b.burst + n
		if rest > 0 {
			r.Used++
		}
		next = over.plus(b.token, b.denominator)
	}
	if r.RetryAfter = Never; n <= b.burst {
		r.RetryAfter = b.until(wanted.minus(b.capacity, b.denominator))
	}
	if r.RetryAfter > 0 {
		r.Violated = 1
	}
	r.Delay = r.RetryAfter
	if b.queue {
		r.Delay = micros(found.ceil())
	}
	if r.Used > 0 {
		r.NextAfter, r.ResetAfter = b.until(next), b.until(after)
	}
}

// RetryReserve is the wait until a reservation for at most bound later can be had.
func (b *TokenBucket) RetryReserve(r Reading, bound time.Duration) time.Duration {
	switch {
	case r.RetryAfter == Never:
		return Never
	case b.queue:
		return max(r.RetryAfter, r.Delay-bound)
	}
	return r.RetryAfter - bound
}

// until is how long until a backlog is gone.
func (b *TokenBucket) until(backlog Cost) time.Duration {
	left := backlog.ceil()
	switch {
	case left <= 0:
		return 0
	case b.frozen:
		return Never
	}
	return micros(left)
}
