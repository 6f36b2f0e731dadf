package measure

import (
	"context"
	"sync"
	"time"
)

// Plan says how much is measured.
type Plan struct {
	// Rounds is how often everything is measured: figures are medians of that many.
	Rounds int
	// Slice is how long a contender is driven in a round.
	Slice time.Duration
	// Workers are four numbers of concurrent callers, the first of them 1. The third is that of figures which are for
	// one number only.
	Workers [4]int
	// Keys are four numbers of keys, the first of them 1. The third is that of spread loads.
	Keys [4]int
	// Calls is how many a lone caller makes whose instructions are counted, and each process of a fleet.
	Calls int
	// Fleet is a number of processes with one caller each.
	Fleet int
}

// Busy is the number of callers where one number has to do.
func (p *Plan) Busy() int { return p.Workers[2] }

// Spread is the number of keys where one number has to do.
func (p *Plan) Spread() int { return p.Keys[2] }

// Fill does an operation once on each of the keys, so that later ones find what they left.
func Fill(ctx context.Context, workers, keys int, do Do) {
	var running sync.WaitGroup
	for w := range workers {
		running.Go(func() {
			for key := w; key < keys && ctx.Err() == nil; key += workers {
				// A key that is left out makes the load a little less full, and no figure wrong.
				_, _ = do(ctx, w, key)
			}
		})
	}
	running.Wait()
}
