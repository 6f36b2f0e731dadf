package core

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// Block admits everything to a key until it has had Strikes strikes in any time of length Within,
// and then nothing until the block has ended. Each unit that is spent is a strike. A charge with
// NoCost asks whether the key is blocked. Any other fits if the key is not blocked, whatever its
// Cost.
//
// Each block lasts twice as long as the one before, up to Most. If the last one has ended for as
// long as Forgive, the next lasts For again. Strikes of a blocked key do not count. A refund
// forgets strikes and lifts no block; Gate.Reset lifts it and forgives.
//
// Gate.BlockKey blocks a key by hand, Gate.ForgetStrikes forgets the strikes of one that has done
// well, and Gate.BlockedKeys lists those that are blocked.
//
// In a Result, Limit is Strikes, Used the strikes that count, and RetryAfter the rest of the block.
// While Redis does not answer, a Local process blocks only for the strikes that it sees itself. A
// changed Block applies to the strikes that are kept and to the next block.
type Block struct {
	Strikes int64         // that block; 1 to 100
	Within  time.Duration // of whole microseconds, at most 25 years, as all below
	For     time.Duration // how long the first block lasts
	Most    time.Duration // how long a block lasts at most; zero means For: no block lasts longer
	Forgive time.Duration // zero means Most
}

func (b Block) compile() (compiled, error) {
	most := cmp.Or(b.Most, b.For)
	limit, err := algorithm.NewBlock(b.Strikes, b.Within, b.For, most, cmp.Or(b.Forgive, most))
	return counted("Block", limit, err)
}

// BlockKey blocks a key by hand for a time, at most 25 years, or for the rest of its block if that
// is longer. The algorithm of the policy must be a [Block]. A Local policy blocks the key in this
// process if Redis does not answer, and the error is nil. Otherwise the errors are those of Decide,
// and those of Redis. Reset unblocks a key: other processes remember the block for up to a second.
func (g *Gate) BlockKey(ctx context.Context, p *Policy, key Key, d time.Duration) error {
	if d < time.Microsecond || d > algorithm.Longest/4 {
		return fmt.Errorf("%w: a block of %v", ErrCharge, d)
	}
	return g.strikeByHand(ctx, OpBlockKey, p, key, func(r *request.Request, b *algorithm.Block) {
		r.Op, r.Charges[0].Cost = algorithm.Force, b.ByHand(d)
	})
}

// ForgetStrikes forgets the strikes of a key, as after a login that succeeded. It lifts no block,
// and the next one is as long as it would have been. The errors are those of BlockKey.
func (g *Gate) ForgetStrikes(ctx context.Context, p *Policy, key Key) error {
	forget := func(r *request.Request, _ *algorithm.Block) {
		c := r.Charges[0]
		r.Op, c.Reply = algorithm.Give, []int64{algorithm.AllStrikes}
		c.Cost = algorithm.Cost{Whole: algorithm.MaxStrikes} // the limit may have been higher
	}
	return g.strikeByHand(ctx, OpForgetStrikes, p, key, forget)
}

// strikeByHand is strike, unless the Gate is closed, and tells the observer.
func (g *Gate) strikeByHand(
	ctx context.Context, op Op, p *Policy, key Key,
	ask func(*request.Request, *algorithm.Block),
) error {
	start, err := time.Now(), ErrClosed
	if !g.isClosed() {
		err = g.strike(ctx, p, key, ask)
	}
	if g.observe != nil {
		g.tell(ctx, &BlockEvent{Op: op, Policy: p, Key: key, Err: err, Took: time.Since(start)})
	}
	return err
}

// strike sends one charge under a Block.
func (g *Gate) strike(
	ctx context.Context, p *Policy, key Key, ask func(*request.Request, *algorithm.Block),
) error {
	charges := []Charge{{Policy: p, Key: key}}
	if err := check(charges); err != nil {
		return err
	}
	limit, err := p.limitOf(ctx, key, nil)
	if err != nil {
		return err
	}
	block, ok := limit.current().(*algorithm.Block)
	if !ok {
		return fmt.Errorf("%w: the algorithm of %s is no Block", ErrCharge, p.name)
	}
	var c charge
	c.at(key, limit)
	c.Limit, c.policy = block, p
	requests := []request.Request{{Charges: []*request.Charge{&c.Charge}}}
	ask(&requests[0], block)
	err = g.send(g.bound(ctx), requests)
	if err == nil || deadline.Err(ctx) != nil || c.mode(err) != FailLocal {
		return err
	}
	return g.local.Decide(ctx, requests)
}

// BlockedKey is a key that is blocked.
type BlockedKey struct {
	Key  Key
	Rest time.Duration // until the block ends
}

// BlockedKeys iterates over the keys that are blocked under a policy whose algorithm is a [Block].
// It is for operators: it looks at every key in Redis, in steps of some 1,000, and needs the
// permission SCAN. A key may come twice, and one that is blocked meanwhile may be missing. An error
// ends it. For keys with limits of their own it lists the Blocks among them.
func (g *Gate) BlockedKeys(ctx context.Context, p *Policy) iter.Seq2[BlockedKey, error] {
	return func(yield func(BlockedKey, error) bool) {
		if g.isClosed() {
			yield(BlockedKey{}, ErrClosed)
			return
		}
		if p == nil || p.own == nil {
			yield(BlockedKey{}, fmt.Errorf("%w: the policy is missing", ErrCharge))
			return
		}
		more := true
		suffix := ":" + p.name + ":" + (*algorithm.Block)(nil).Tag()
		err := g.store.Scan(ctx, suffix, func(path, value string, now int64) bool {
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

// blocks fills in the decision on charges if one is on a key that is known to be blocked, and
// returns whether one is.
func (c *denialCache) blocks(ctx context.Context, charges []Charge, d *Decision) bool {
	for i := range charges {
		p := charges[i].Policy
		if p == nil || !p.blocks {
			continue
		}
		alone := [1]Charge{charges[i]}
		alone[0].Cost = NoCost
		var one Decision
		if check(charges) != nil || !c.answer(ctx, alone[:], &one) {
			continue
		}
		d.Source = SourceCache
		d.resize(len(charges))
		for j := range charges {
			*d.at(j) = Result{Policy: charges[j].Policy, Source: SourceCache, Allowed: true}
		}
		*d.at(i) = *one.at(0)
		return true
	}
	return false
}
