package core

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// Blocklist blocks keys by hand under a policy whose algorithm is a [Block], and lists the blocked
// keys. It is immutable and safe for concurrent use.
type Blocklist struct {
	gate   *Gate
	policy *Policy
}

// NewBlocklist returns the Blocklist of a policy. The error wraps ErrCharge if the algorithm of the
// policy is no [Block].
func NewBlocklist(g *Gate, p *Policy) (*Blocklist, error) {
	switch {
	case p == nil || p.own == nil:
		return nil, fmt.Errorf("%w: the policy is missing, or not made by NewPolicy", ErrCharge)
	case !p.blocks:
		return nil, fmt.Errorf("%w: the algorithm of %s is no Block", ErrCharge, p.name)
	}
	return &Blocklist{gate: g, policy: p}, nil
}

// Block blocks a key for a time, at most 25 years, or for the rest of its block if that is longer.
// A Local policy blocks the key in this process if Redis does not answer, and the error is nil.
// Otherwise it returns the errors of Decide, and those of Redis. Gate.Reset unblocks a key: other
// processes remember the block for up to a second.
func (b *Blocklist) Block(ctx context.Context, key Key, d time.Duration) error {
	if d < time.Microsecond || d > algorithm.Longest/4 {
		return fmt.Errorf("%w: a block of %v", ErrCharge, d)
	}
	block := func(r *request.Request, limit *algorithm.Block) {
		r.Op, r.Charges[0].Cost = algorithm.Force, limit.ByHand(d)
	}
	return b.change(ctx, OpBlock, key, block)
}

// Forget forgets the strikes of a key, as after a login that succeeded. It lifts no block, and the
// next one is as long as it would have been. It returns the errors of Block.
func (b *Blocklist) Forget(ctx context.Context, key Key) error {
	forget := func(r *request.Request, _ *algorithm.Block) {
		c := r.Charges[0]
		r.Op, c.Reply = algorithm.Give, []int64{algorithm.AllStrikes}
		c.Cost = algorithm.Cost{Whole: algorithm.MaxStrikes} // the limit may have been higher
	}
	return b.change(ctx, OpForget, key, forget)
}

// change sends one charge that ask fills in, and tells the observer.
func (b *Blocklist) change(
	ctx context.Context, op Op, key Key, ask func(*request.Request, *algorithm.Block),
) error {
	start, err := time.Now(), ErrClosed
	if !b.gate.isClosed() {
		err = b.send(ctx, key, ask)
	}
	if b.gate.observe != nil {
		b.gate.tell(ctx, &BlockEvent{
			Op: op, Policy: b.policy, Key: key, Err: err, Took: time.Since(start),
		})
	}
	return err
}

func (b *Blocklist) send(
	ctx context.Context, key Key, ask func(*request.Request, *algorithm.Block),
) error {
	if key.outer == 0 {
		return fmt.Errorf("%w: it is missing", ErrKey)
	}
	block := b.policy.own.current().(*algorithm.Block) // as NewBlocklist has checked
	var c charge
	c.at(key, b.policy.own)
	c.Limit, c.policy = block, b.policy
	requests := []request.Request{{Charges: []*request.Charge{&c.Charge}}}
	ask(&requests[0], block)
	err := b.gate.send(b.gate.bound(ctx), requests)
	if err == nil || deadline.Err(ctx) != nil || c.mode(err) != FailLocal {
		return err
	}
	return b.gate.local.Decide(ctx, requests)
}

// BlockedKey is a key that is blocked.
type BlockedKey struct {
	Key  Key
	Rest time.Duration // until the block ends
}

// All iterates over the blocked keys. It is for operators: it looks at every key in Redis, in steps
// of some 1,000, and needs the permission SCAN. A key may come twice, and one that is blocked
// meanwhile may be missing. An error ends it.
func (b *Blocklist) All(ctx context.Context) iter.Seq2[BlockedKey, error] {
	return func(yield func(BlockedKey, error) bool) {
		if b.gate.isClosed() {
			yield(BlockedKey{}, ErrClosed)
			return
		}
		more := true
		suffix := ":" + b.policy.name + ":" + (*algorithm.Block)(nil).Tag()
		err := b.gate.store.Scan(ctx, suffix, func(path, value string, now int64) bool {
			if until, ok := algorithm.BlockedUntil(value); ok && until > now {
				rest := time.Duration(until-now) * time.Microsecond
				more = yield(BlockedKey{keyAt(path), rest}, nil)
			}
			return more
		})
		if err != nil && more {
			yield(BlockedKey{}, err)
		}
	}
}
