package core

import (
	"context"
	"time"
)

// known fills in and reports the decision on charges, if it is known without asking Redis: that of a moment ago which denied
// them, or one by what was taken ahead, if that will do.
func (g *Gate) known(ctx context.Context, charges []Charge, d *Decision, ahead bool) bool {
	if g.circuit == nil || g.closed.Load() || ctx.Err() != nil {
		return false
	}
	var start time.Time
	if g.observe != nil {
		start = time.Now()
	}
	if !(ahead && g.ahead.take(ctx, charges, d)) && !g.cache.answer(ctx, charges, d) {
		return false
	}
	g.report(ctx, algorithmDecide, d, nil, start)
	return true
}
