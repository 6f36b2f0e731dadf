package core

import (
	"errors"
	"iter"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
)

// Source says who decided.
type Source uint8

// The sources of a Decision.
const (
	SourceNone   Source = iota // nobody: there was nothing to decide, or an error
	SourceRedis                // Redis, for all replicas together
	SourceMemory               // a Gate in memory
	SourceOpen                 // nobody, where Redis failed and the policies that it left are Open
	SourceLocal                // this process alone, where Redis failed and one of these policies is Local
	SourceClosed               // nobody, where Redis failed and one of these policies is Closed
	SourceCache                // Redis, a moment ago: a denial that nothing but time lifts
)

// String names the source in one lower-case word.
func (s Source) String() string {
	return nameOf([]string{"none", "redis", "memory", "open", "local", "closed", "cache"}, int(s))
}

// Result is the outcome of one charge.
type Result struct {
	Policy *Policy
	// Allowed says whether this charge fits. All charges of an admitted request but shadows do.
	Allowed bool
	// Source says who decided this charge.
	Source Source
	// Known is false where nobody counted: while Redis is down for a policy that is Open or Closed, and for Unlimited; and
	// where a denial of a moment ago does not say how the key stands now. Used, Remaining, NextAfter and ResetAfter are 0 then.
	Known bool

	defers   bool  // its reservations may be for later
	violated uint8 // a bit for each window; beside the others, as a Decision is large enough to cost time

	// Limit is how much an untouched key allows at once. Used + Remaining = Limit, except that Used exceeds Limit and
	// Remaining is 0 while there are debts or reservations for later, or after the limit was lowered. Of a SlidingLog, Limit,
	// Window and Used tell about its longest window, and Remaining is the least of all windows.
	Limit, Used, Remaining int64
	// Window is the window or period that Limit is for; of a bucket, how long an exhausted one takes to be whole again,
	// Never if it does not.
	Window time.Duration
	// RetryAfter is the wait after which the same charge fits if nothing else is spent, to the microsecond and
	// rounded up: 0 where it fits now, Never where waiting does not help.
	RetryAfter time.Duration
	// NextAfter is the wait until Remaining rises: 0 if nothing is missing of it, Never if it does not rise.
	NextAfter time.Duration
	// ResetAfter is the wait until all of Limit remains, of every window of a SlidingLog; Never where that does not come.
	ResetAfter time.Duration
	// Delay is how long after a reservation this charge may act, 0 for all other charges.
	Delay time.Duration
}

// Violates says whether window i of a SlidingLog stands in the way of the charge. Of every other algorithm that is
// whether window 0 does. In a denial of a moment ago, it is whether the window did so then.
func (r *Result) Violates(i int) bool {
	return !r.Allowed && i >= 0 && i < algorithm.MaxWindows && r.violated&(1<<i) != 0
}

const inlineResults = 4

// Decision is the outcome of a request's charges. It is a value; the zero value is a denial of nothing.
type Decision struct {
	// Allowed says whether the request may go on. All charges have been spent then; else none has.
	Allowed bool
	// Source says who decided.
	Source Source
	// Cause is why a failure mode decided, else nil.
	Cause error

	n      int
	inline [inlineResults]Result
	more   []Result
}

// Len is the number of results: one for each charge, in the order of the charges.
func (d *Decision) Len() int { return d.n }

// At returns the result of charge i. It panics if i is not below Len.
func (d *Decision) At(i int) Result { return *d.at(i) }

func (d *Decision) at(i int) *Result {
	if i < inlineResults {
		return &d.inline[:min(d.n, inlineResults)][i]
	}
	return &d.more[i-inlineResults]
}

func (d *Decision) resize(n int) {
	d.n = n
	if n > inlineResults {
		d.more = make([]Result, n-inlineResults)
	}
}

// Results returns an iterator over the indexes and results of the charges, in the order of the charges.
func (d *Decision) Results() iter.Seq2[int, Result] {
	return func(yield func(int, Result) bool) {
		for i := range d.n {
			if !yield(i, *d.at(i)) {
				return
			}
		}
	}
}

// RetryAfter returns the largest wait over the charges that deny, Never if waiting does not help, and 0 for an admitted
// request.
func (d *Decision) RetryAfter() (wait time.Duration) {
	for i := range d.n {
		if r := d.at(i); !d.Allowed && !r.Allowed && !r.Policy.shadow {
			wait = max(wait, r.RetryAfter)
		}
	}
	return wait
}

// delay is the longest over all charges but shadows.
func (d *Decision) delay() (longest time.Duration) {
	for i := range d.n {
		if r := d.at(i); !r.Policy.shadow {
			longest = max(longest, r.Delay)
		}
	}
	return longest
}

// stateless fills in what an algorithm without state decides.
func (r *Result) stateless(denies bool) {
	if !denies {
		r.Allowed = true
		return
	}
	r.Known, r.Window, r.RetryAfter, r.NextAfter, r.ResetAfter = true, Never, Never, Never, Never
}

// tell fills in what a limit says of a charge that fits, or does not.
func (r *Result) tell(limit algorithm.Limit, reading *algorithm.Reading, fits bool) {
	r.Allowed, r.Known = fits, true
	r.Limit, r.Used, r.Remaining, r.Window = reading.Limit, reading.Used, reading.Remaining, reading.Window
	r.NextAfter, r.ResetAfter = reading.NextAfter, reading.ResetAfter
	if !fits {
		r.RetryAfter, r.violated = reading.RetryAfter, reading.Violated
	}
	_, r.defers = limit.(*algorithm.TokenBucket)
}

// read fills in what came of a charge.
func (r *Result) read(c *charge, p *plan, cause error) {
	if c.failed {
		r.Limit, r.Window = quota(c.Limit)
		r.Source, r.Allowed = SourceOpen, c.mode(errors.Is(cause, ErrMisconfigured)) == Open
		if !r.Allowed {
			r.Source, r.RetryAfter = SourceClosed, closedRetry
		}
		return
	}
	if c.local {
		r.Source = SourceLocal
	}
	reading := c.Limit.Read(c.Reply, c.Limit.Cost(c.Spent), c.Units)
	fits := c.Fits
	if bucket, ok := c.Limit.(*algorithm.TokenBucket); ok && p.op == algorithm.Reserve {
		// Where something else denied before, it was only peeked at, as if it could not wait.
		reading.RetryAfter = max(0, bucket.RetryReserve(reading, time.Duration(p.bound)*time.Microsecond))
		fits = reading.RetryAfter == 0
	}
	r.tell(c.Limit, &reading, fits)
	if fits && p.op == algorithm.Reserve && c.Spent > 0 {
		r.Delay = reading.Delay
	}
	if c.local && r.RetryAfter == Never && c.Units <= c.whole {
		r.RetryAfter = closedRetry // it is this process's share that is too small
	}
}

// hopeless says whether a reservation was denied by a limit whose reservations may be for later.
func (d *Decision) hopeless() bool {
	for i := range d.n {
		if r := d.at(i); !r.Allowed && r.defers && !r.Policy.shadow {
			return true
		}
	}
	return false
}
