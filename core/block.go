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
// A [Blocklist] blocks keys by hand, forgets the strikes of a key that has done well, and lists the
// blocked keys.
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
	return counted(algorithm.NewBlock(b.Strikes, b.Within, b.For, most, cmp.Or(b.Forgive, most)))
}

// blocks fills in the decision on charges if one is on a key that is known to cool, or to be blocked for
// longer than any other may deny, and returns whether one is.
func (c *denialCache) blocks(charges []Charge, d *Decision, now time.Duration) bool {
	for i := range charges {
		p := charges[i].Policy
		if p == nil || !p.blocks {
			continue
		}
		alone := [1]Charge{charges[i]}
		alone[0].Cost = NoCost
		var one Decision
		if check(charges) != nil || !c.answer(alone[:], &one, now) ||
			one.at(0).reason == 0 && !outlasts(one.RetryAfter(), charges, i) {
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

// outlasts reports whether a wait is at least as long as those of all charges except the i-th may be.
func outlasts(wait time.Duration, charges []Charge, i int) bool {
	for j := range charges {
		if j != i && !charges[j].Policy.cfg.Shadow && charges[j].longestWait() > wait {
			return false
		}
	}
	return true
}

// longestWait returns how long the charge's own limit may deny it, whatever was spent.
func (a *Charge) longestWait() time.Duration {
	from, err := a.Policy.limitOf(a.Limit)
	if err != nil || from.denies {
		return Never
	}
	switch limit := from.current().(type) {
	case nil:
		return 0
	case *algorithm.Block:
		return limit.Most()
	default:
		// A debt of a limit takes another window, and the next period of a calendar is at most a fifth
		// longer. A deeper debt is told when the block is over.
		window := limit.Window()
		if a.units() > limit.Capacity() || window > algorithm.Longest {
			return Never
		}
		return 3 * window
	}
}

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
		return nil, fmt.Errorf("%w: the algorithm of %s is no Block", ErrCharge, p.cfg.Name)
	}
	return &Blocklist{gate: g, policy: p}, nil
}

// Block blocks a key for a time, at most 25 years, or for the rest of its block if that is longer.
// It forgets the strikes of the key, as every block does, and Forgive counts from the end of it.
// A Local policy blocks the key in this process if Redis does not answer, and the error is nil.
// Otherwise it returns the errors of Decide, and those of Redis. Gate.Reset unblocks a key: other
// processes remember the block for up to a second.
func (b *Blocklist) Block(ctx context.Context, key Key, d time.Duration) error {
	_, _, err := b.block(ctx, key, d)
	return err
}

// block is Block. It returns for how long the key is blocked then, and the cause that send returns.
func (b *Blocklist) block(
	ctx context.Context, key Key, d time.Duration,
) (rest time.Duration, cause, err error) {
	if d < time.Microsecond || d > algorithm.Longest/4 {
		return 0, nil, fmt.Errorf("%w: a block of %v", ErrCharge, d)
	}
	block := func(r *request.Request, limit *algorithm.Block) {
		r.Op = algorithm.Force
		r.Charges[0].Cost = limit.ByHand(d, 0)
	}
	told, cause, err := b.change(ctx, OpBlock, key, block)
	if err != nil {
		return 0, nil, err
	}
	rest, _ = told.Limit.(*algorithm.Block).Rest(told.Reply, told.Cost)
	return rest, cause, nil
}

// Forget forgets the strikes of a key, as after a login that succeeded. It lifts no block, and the
// next one is as long as it would have been. It returns the errors of Block.
func (b *Blocklist) Forget(ctx context.Context, key Key) error {
	forget := func(r *request.Request, _ *algorithm.Block) {
		c := r.Charges[0]
		r.Op = algorithm.Give
		c.Reply = []int64{algorithm.AllStrikes}
		c.Cost = algorithm.Cost{Whole: algorithm.MaxStrikes} // the limit may have been higher
	}
	_, _, err := b.change(ctx, OpForget, key, forget)
	return err
}

// change is send, and tells the observer.
func (b *Blocklist) change(
	ctx context.Context, op Op, key Key, ask func(*request.Request, *algorithm.Block),
) (told *request.Charge, cause, err error) {
	start := time.Now()
	err = ErrClosed
	if !b.gate.isClosed() {
		told, cause, err = b.send(ctx, key, ask)
	}
	b.gate.tellKey(ctx, op, b.policy, key, err, start)
	return told, cause, err
}

// send sends one charge that ask fills in, and returns it with its reply. The cause is why this process
// has answered in place of Redis, which does not know of the charge, or nil.
func (b *Blocklist) send(
	ctx context.Context, key Key, ask func(*request.Request, *algorithm.Block),
) (told *request.Charge, cause, err error) {
	if key.in.Outer == 0 {
		return nil, nil, fmt.Errorf("%w: it is missing", ErrKey)
	}
	block := b.policy.own.current().(*algorithm.Block) // as NewBlocklist has checked
	c := chargeOn(key, b.policy.own, block)
	c.Kind = request.KindOf(c.Suffix, block) // by hand, a shadow blocks too
	requests := []request.Request{{Charges: []*request.Charge{&c.Charge}}}
	ask(&requests[0], block)
	err = b.gate.send(b.gate.bound(ctx), requests)
	if err == nil || deadline.Err(ctx) != nil || c.mode(err) != FailLocal {
		return &c.Charge, nil, err
	}
	return &c.Charge, err, b.gate.local.Decide(ctx, requests)
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
		suffix := ":" + b.policy.cfg.Name + ":" + algorithm.BlockTag
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
