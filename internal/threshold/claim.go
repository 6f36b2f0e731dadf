package threshold

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

const (
	// claimLasts is how long a claim of a process that dies keeps others from making it.
	claimLasts = 10 * time.Second
	// claimAge is how long after its period a claim is made.
	claimAge = time.Minute
	// markLasts is how much longer than a period a mark of it lasts: the last claims of the period
	// have arrived then, because a decision waits for an answer for a minute at most.
	markLasts = 2 * time.Minute
	// longestPause is the longest pause between attempts to claim, and to mark what was told.
	longestPause = time.Second
)

// claim records which thresholds one decision saw reached. Two states of the period stand for each:
// a window that begins with the claim, so that one process tells the threshold, and a mark that it
// was told. Both have the limit and the start of the period in their names, because the limit may
// be raised, and a claim may come after the period has ended.
type claim[O any] struct {
	Sighting[O]
	failed bool // an attempt failed, and the store may have the claim all the same
}

// settle claims the thresholds, tells those that no process has told, and leaves in Bits those that
// are claimed and not told yet.
func (c *claim[O]) settle(cfg *Config[O]) error {
	requests := c.requests()
	if err := cfg.Send(requests); err != nil {
		return err
	}
	var told []request.Request
	for i, percent := range c.Percents {
		if c.Bits&(1<<i) == 0 {
			continue
		}
		claimed, mark := requests[0].Admitted(), requests[1]
		unmarked := mark.Admitted()
		requests = requests[2:]
		if claimed || !unmarked {
			c.Bits &^= 1 << i
		}
		if claimed && unmarked {
			cfg.Tell(&c.Sighting, percent)
			mark.Op = algorithm.Decide
			told = append(told, mark)
		}
	}
	if len(told) > 0 && cfg.Send(told) != nil {
		cfg.Tasks.Go(func() { sendAgain(cfg, told) })
	}
	return nil
}

// isLate reports whether a mark of the claim's period may have ended.
func (c *claim[O]) isLate() bool {
	left := time.Duration(c.Span.Left) * time.Microsecond
	return c.Span.Width > 0 && time.Since(c.Asked) > left+claimAge
}

// once returns a limit of one unit in a window that begins with it.
func once(lasts time.Duration) algorithm.Limit {
	limit, _ := algorithm.NewFixedWindow(1, min(lasts, algorithm.Longest/4), true) // these figures are valid
	return limit
}

// requests returns a claim and a look at the mark for each threshold. The claim comes first, so
// that the mark tells what earlier claims have led to.
func (c *claim[O]) requests() (all []request.Request) {
	claims, marks := once(claimLasts), once(algorithm.Longest)
	if width := time.Duration(c.Span.Width) * time.Microsecond; width > 0 {
		marks = once(width + markLasts)
	}
	for i, percent := range c.Percents {
		if c.Bits&(1<<i) != 0 {
			name := fmt.Sprintf("%s:t%d-%d-%d", c.State.Suffix, percent, c.Limit, c.Span.Start)
			all = append(all, c.ask(algorithm.Decide, name+":claim", claims),
				c.ask(algorithm.Peek, name, marks))
		}
	}
	return all
}

// ask returns a request for one unit of a state of the key.
func (c *claim[O]) ask(
	op algorithm.Operation, suffix string, limit algorithm.Limit,
) request.Request {
	return request.Request{Terms: algorithm.Terms{Op: op}, Charges: []*request.Charge{{
		Kind: request.KindOf(suffix, limit), Key: c.State.Key, Limit: limit, Units: 1, Cost: limit.Cost(1),
	}}}
}

// sendAgain marks what was told until the store has it, whatever it answers, or the tasks are stopped.
func sendAgain[O any](cfg *Config[O], told []request.Request) {
	for pause := min(cfg.Pause, longestPause); cfg.Tasks.Sleep(pause); pause = min(2*pause, longestPause) {
		if cfg.Send(told) == nil {
			return
		}
	}
}
