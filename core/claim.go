package core

import (
	"context"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

const (
	// claimLasts is how long a claim of a process that dies keeps others from making it.
	claimLasts = 10 * time.Second
	// claimAge is how old a decision may be whose claims are made.
	claimAge = time.Minute
	// markLasts is how much longer than a period a mark of it lasts: the last claims of the period
	// have arrived then, because a decision waits for an answer for a minute at most.
	markLasts = 2 * time.Minute
)

// claim is thresholds that one decision has found one state at. Two states of the period stand for
// each: a window that begins with the claim, so that one process tells the threshold, and a mark
// that it was told. Both have the limit and the start of the period in their names, because the
// limit may be raised, and a claim may come after the period has ended.
type claim struct {
	id          uint64
	policy      *Policy
	key         Key
	suffix      string // of the state
	bits        uint8  // of the policy's thresholds
	used, limit int64
	span        algorithm.Span
	start       time.Time // before the decision
}

// tell claims the thresholds and tells the observer those that no process has told. It reports
// whether another process has claimed some and has not told them yet.
func (c *claim) tell(g *Gate) (contested bool, err error) {
	claims, marks, err := c.limits()
	if err == nil {
		err = c.find(g)
	}
	if err != nil {
		return false, err
	}
	var requests []request.Request
	for i, percent := range c.policy.thresholds {
		if c.bits&(1<<i) != 0 {
			name := fmt.Sprintf("%s:t%d-%d-%d", c.suffix, percent, c.limit, c.span.Start)
			// The claim comes first, so that the mark tells what earlier claims have led to.
			requests = append(requests, c.ask(algorithm.Decide, name+":claim", claims),
				c.ask(algorithm.Peek, name, marks))
		}
	}
	if err := c.send(g, requests); err != nil {
		return false, err
	}
	var told []request.Request
	for i, percent := range c.policy.thresholds {
		if c.bits&(1<<i) == 0 {
			continue
		}
		claimed, unmarked := requests[0].Admitted(), requests[1].Admitted()
		mark := requests[1]
		requests = requests[2:]
		if claimed && unmarked {
			g.tell(context.Background(), &ThresholdEvent{
				Policy: c.policy, Key: c.key, Percent: percent, Used: c.used, Limit: c.limit,
			})
			mark.Op = algorithm.Decide
			told = append(told, mark)
		}
		contested = contested || !claimed && unmarked
	}
	if len(told) > 0 && c.send(g, told) != nil {
		g.tasks.Go(func() { c.sendAgain(g, told) })
	}
	return contested, nil
}

// limits returns the limits of a claim and of a mark.
func (c *claim) limits() (claims, marks algorithm.Limit, err error) {
	if claims, err = algorithm.NewFixedWindow(1, claimLasts, true); err != nil {
		return nil, nil, err
	}
	lasts := algorithm.Longest / 4
	if width := time.Duration(c.span.Width) * time.Microsecond; width > 0 {
		lasts = min(lasts, width+markLasts)
	}
	marks, err = algorithm.NewFixedWindow(1, lasts, true)
	return claims, marks, err
}

// find finds the start of the period if the reply to the decision did not tell it. The store's
// clock does: the period is a window that starts at a multiple of its width.
func (c *claim) find(g *Gate) error {
	if c.span.Start < 0 {
		minutes, err := algorithm.NewCalendar(1, algorithm.Minute, time.UTC, time.Time{}, time.Now())
		if err != nil {
			return err
		}
		look := c.ask(algorithm.Peek, c.suffix+":now", minutes.Current())
		if err := c.send(g, []request.Request{look}); err != nil {
			return err
		}
		minute, _ := algorithm.SpanOf(look.Charges[0].Limit, look.Charges[0].Reply)
		now := minute.Start + minute.Width - minute.Left
		end := now + c.span.Left // too late by less than the age, so by less than the width
		c.span.Start = end - end%c.span.Width - c.span.Width
	}
	if age := time.Since(c.start); age > claimAge {
		return fmt.Errorf("core: the decision is %v old", age)
	}
	return nil
}

// ask returns a request for one unit of a state of the key.
func (c *claim) ask(op algorithm.Operation, suffix string, limit algorithm.Limit) request.Request {
	return request.Request{Op: op, Charges: []*request.Charge{{
		Key: c.key.path, Outer: c.key.outer, KeyHash: c.key.sum,
		Suffix: suffix, Hash: c.key.sum ^ maphash.String(hashes, suffix),
		Limit: limit, Units: 1, Cost: limit.Cost(1),
	}}}
}

// send asks the store in one step: the states are those of one key.
func (c *claim) send(g *Gate, requests []request.Request) error {
	return safely(func() error { return g.send(g.bound(context.Background()), requests) })
}

// sendAgain marks what was told until the claim has ended. Then other processes tell it again.
func (c *claim) sendAgain(g *Gate, told []request.Request) {
	start := time.Now()
	for pause := min(g.timeout, time.Second); g.tasks.Sleep(pause); pause = min(2*pause, time.Second) {
		if time.Since(start) > claimLasts || c.send(g, told) == nil {
			return
		}
	}
}
