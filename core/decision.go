package core

import (
	"errors"
	"time"
)

// Source says who decided.
type Source uint8

// The sources of a Decision.
const (
	SourceRedis  Source = iota // Redis, for all replicas together
	SourceMemory               // a Gate in memory
	SourceOpen                 // nobody, where Redis failed and the policies that it left are Open
	SourceLocal                // this process alone, where Redis failed and one of these policies is Local
	SourceClosed               // nobody, where Redis failed and one of these policies is Closed
)

// String names the source in one lower-case word.
func (s Source) String() string {
	return [...]string{"redis", "memory", "open", "local", "closed"}[s]
}

// Result is the outcome of one charge.
type Result struct {
	Policy *Policy
	// Allowed says whether this charge fits. All charges of an admitted request but shadows do.
	Allowed bool
	// Known is false where nobody counted: while Redis is down for a policy that is Open or Closed, and for Unlimited.
	// Used, Remaining, NextAfter and ResetAfter are 0 then.
	Known bool
	// Limit is how much an untouched key allows at once. Used + Remaining = Limit.
	Limit, Used, Remaining int64
	// RetryAfter is the wait after which the same charge fits if nothing else is spent, to the microsecond and
	// rounded up: 0 where it fits now, Never where waiting does not help.
	RetryAfter time.Duration
	// NextAfter is the wait until Remaining rises, 0 where nothing is used, Never where it does not rise.
	NextAfter time.Duration
	// ResetAfter is the wait until all of Limit remains, Never where that does not come.
	ResetAfter time.Duration
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

// At is the result of charge i.
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

// RetryAfter is the largest wait over the charges that stand in the way, and false if waiting does not help.
// It is 0 and true for an admitted request.
func (d *Decision) RetryAfter() (wait time.Duration, finite bool) {
	if d.Allowed {
		return 0, true
	}
	for i := range d.n {
		if r := d.at(i); !r.Allowed && !r.Policy.shadow {
			wait = max(wait, r.RetryAfter)
		}
	}
	if wait == Never {
		return 0, false
	}
	return wait, true
}

// read fills in what came of a charge: the one place where replies are understood.
func (r *Result) read(c *charge, cause error) {
	if c.failed {
		r.Limit = c.limit.Capacity()
		r.Allowed = c.mode(errors.Is(cause, ErrMisconfigured)) == Open
		if !r.Allowed {
			r.RetryAfter = closedRetry
		}
		return
	}
	reading := c.limit.Read(c.reply, c.limit.Cost(c.spent), c.units)
	r.Allowed, r.Known = c.fits, true
	r.Limit, r.Used, r.Remaining = reading.Limit, reading.Used, reading.Remaining
	r.NextAfter, r.ResetAfter = reading.NextAfter, reading.ResetAfter
	if !r.Allowed {
		r.RetryAfter = reading.RetryAfter
	}
}
