package core

import (
	"cmp"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
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
	limit, err := algorithm.NewBlock(b.Strikes, b.Within, b.For, most, cmp.Or(b.Forgive, most))
	return counted("Block", limit, err)
}

// blocks fills in the decision on charges if one is on a key that is known to be blocked, and
// returns whether one is.
func (c *denialCache) blocks(charges []Charge, d *Decision) bool {
	for i := range charges {
		p := charges[i].Policy
		if p == nil || !p.blocks {
			continue
		}
		alone := [1]Charge{charges[i]}
		alone[0].Cost = NoCost
		var one Decision
		if check(charges) != nil || !c.answer(alone[:], &one) {
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
