package core

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/deadline"
	"github.com/headgate/headgate/internal/request"
)

// giveBack refunds in reverse order what the requests spent and the decision does not: all of it,
// or of an admitted SpendUpTo what is above the final bound. It is sent once, like every script.
// What cannot be refunded stays spent, so that the others never see more than the limit.
func (g *Gate) giveBack(ctx context.Context, p *inquiry, requests []request.Request, admitted bool) {
	for i := len(requests) - 1; i >= 0; i-- {
		give := request.Request{Op: algorithm.Give}
		ends := request.Request{Op: algorithm.Settle, Hold: p.hold}
		for _, c := range requests[i].Charges {
			keep := int64(0)
			if admitted {
				keep = c.Spent
				if p.op == algorithm.AtMost {
					keep = min(keep, c.Units*p.bound)
				}
			}
			if c.Spent == keep || p.of(c).local {
				continue
			}
			back := *c
			back.Cost = c.Limit.Cost(c.Spent - keep)
			if p.hold != "" && held(c) {
				k := correctionOf(c)
				k.Held, k.Refund, k.By[0] = true, true, back.Cost
				back.Correction = k
				ends.Charges = append(ends.Charges, &back)
			} else {
				give.Charges = append(give.Charges, &back)
			}
			c.Spent = keep
		}
		for _, r := range []request.Request{give, ends} {
			if len(r.Charges) > 0 {
				g.give(ctx, []request.Request{r})
			}
		}
	}
}

// give sends a refund within the decision's deadline, whatever became of the caller. If no time is
// left, it does not keep the caller waiting.
func (g *Gate) give(ctx context.Context, requests []request.Request) {
	detached := context.WithoutCancel(ctx)
	send := func(end time.Time) {
		if err := g.send(deadline.Until(detached, end), requests); err != nil {
			g.tellReservation(detached, OpRefundFailed, err, 0)
		}
	}
	end, ok := ctx.Deadline()
	if !ok { // in memory
		end = time.Now().Add(g.timeout)
	}
	if time.Until(end) > 0 {
		send(end)
		return
	}
	if g.closed.Load() { // nothing waits for a task that begins now
		send(time.Now().Add(g.timeout))
		return
	}
	g.tasks.Go(func() { send(time.Now().Add(g.timeout)) })
}
