package core

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// Limiter decides policies that share a key. It has the methods of golang.org/x/time/rate, with a
// key. It is immutable and safe for concurrent use.
type Limiter struct {
	gate     *Gate
	policies []*Policy
}

// NewLimiter returns a Limiter of one or more policies. The error wraps ErrCharge.
func NewLimiter(g *Gate, policies ...*Policy) (*Limiter, error) {
	charges := make([]Charge, len(policies))
	for i, p := range policies {
		charges[i] = Charge{Policy: p, Key: keyAt("{x}")}
	}
	if err := check(charges); err != nil {
		return nil, err
	}
	return &Limiter{gate: g, policies: slices.Clone(policies)}, nil
}

// Allow is AllowN with n = 1.
func (l *Limiter) Allow(ctx context.Context, key Key) (d Decision, err error) {
	err = l.allow(ctx, &d, key, 1)
	return d, err
}

// AllowN spends n units of each policy, or nothing; 0 units are [NoCost]. The errors are those of
// Gate.Decide.
func (l *Limiter) AllowN(ctx context.Context, key Key, n int64) (d Decision, err error) {
	err = l.allow(ctx, &d, key, n)
	return d, err
}

func (l *Limiter) allow(ctx context.Context, d *Decision, key Key, n int64) error {
	var inline [4]Charge
	_, err := l.gate.decide(ctx, d, algorithm.Decide, 0, l.charges(inline[:0], key, n))
	return err
}

// charges returns a charge of n units under each policy. A negative n stays an error.
func (l *Limiter) charges(charges []Charge, key Key, n int64) []Charge {
	switch {
	case n == 0:
		n = NoCost
	case n < 0:
		n = math.MinInt64
	}
	charges = slices.Grow(charges, len(l.policies))[:len(l.policies)]
	for i, p := range l.policies {
		c := &charges[i]
		c.Policy = p
		c.Key = key
		c.Cost = n
	}
	return charges
}

// Reserve reserves n units of each policy, for at most maxWait later. See Gate.Reserve.
func (l *Limiter) Reserve(
	ctx context.Context, maxWait time.Duration, key Key, n int64,
) (*Reservation, Decision, error) {
	return l.gate.Reserve(ctx, maxWait, l.charges(nil, key, n)...)
}

// Wait is WaitN with n = 1.
func (l *Limiter) Wait(ctx context.Context, key Key) (Decision, error) {
	return l.WaitN(ctx, key, 1)
}

// WaitN waits until n units of each policy may be spent, and spends them. If waiting does not help,
// would take longer than the deadline of ctx allows, or the queue of a LeakyBucket is full, it
// spends nothing and returns an error that wraps ErrDenied at once, with the Decision that denies.
// In the second case the error wraps context.DeadlineExceeded too. Callers that wait for a
// TokenBucket or a LeakyBucket are served in order. For other algorithms WaitN asks again when
// there is room, and another caller may be first. Foreground callers come before those with a context
// of [WithBackground].
//
// Other errors are those of Gate.Decide. If ctx ends or the Gate is closed while WaitN waits, it
// cancels what it has reserved and returns the error of ctx or ErrClosed. If a [Block] of the
// Limiter has begun meanwhile, it cancels that too, and waits for the end of the block.
func (l *Limiter) WaitN(ctx context.Context, key Key, n int64) (Decision, error) {
	longest, bounded := patience(ctx)
	for yields := yieldsUntil(ctx, longest); ; {
		r, d, err := l.gate.yield(ctx, yields, longest, true, false, l.charges(nil, key, n))
		longest, _ = patience(ctx)
		if err != nil {
			return d, err
		}
		wait := r.Delay()
		if r == nil {
			wait = d.RetryAfter()
			switch {
			case wait == Never:
				return d, fmt.Errorf("%w: waiting does not help", ErrDenied)
			case bounded && wait > longest:
				return d, fmt.Errorf("%w: %w: the wait is %v", ErrDenied, context.DeadlineExceeded, wait)
			case wait > longest || d.hopeless():
				return d, fmt.Errorf("%w: there is no room for %v", ErrDenied, wait)
			}
		}
		err = l.gate.lent.Keeper.Sleep(ctx, wait)
		passes := err == nil && r != nil
		if passes && d.delay() > 0 { // although all of it may have passed before Sleep
			passes, err = l.unblocked(ctx, key, &d)
		}
		if passes {
			return d, nil
		}
		_ = r.Cancel(ctx) // on failure it stays spent
		if err != nil {
			return Decision{}, err
		}
	}
}

// patience returns the time to the deadline of ctx, or the longest wait of a reservation.
func patience(ctx context.Context) (longest time.Duration, bounded bool) {
	at, bounded := ctx.Deadline()
	if !bounded {
		return maxReserve, false
	}
	return max(0, time.Until(at)), true
}

// unblocked asks, after a wait, whether no Block has begun since a decision. A block that the
// caller itself has begun holds for others.
func (l *Limiter) unblocked(ctx context.Context, key Key, since *Decision) (bool, error) {
	var asks []Charge
	for i, c := range l.charges(nil, key, 0) {
		if c.Policy.blocks && since.at(i).Remaining > 0 {
			asks = append(asks, c)
		}
	}
	if len(asks) == 0 {
		return true, nil
	}
	d, err := l.gate.Decide(ctx, asks...)
	return d.Allowed, err
}
