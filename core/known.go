package core

import (
	"context"
	"time"
)

// known fills in and reports the decision on charges, if it is known without asking Redis.
func (g *Gate) known(ctx context.Context, charges []Charge, d *Decision) bool {
	if g.circuit == nil || g.closed.Load() || ctx.Err() != nil {
		return false
	}
	var start time.Time
	if g.observe != nil {
		start = time.Now()
	}
	if !g.cache.answer(ctx, charges, d) {
		return false
	}
	g.report(ctx, algorithmDecide, d, nil, start)
	return true
}
