package core

import (
	"iter"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/enum"
)

// Source says who decided. The zero value is SourceNone.
type Source uint8

// The sources of a Decision.
const (
	SourceNone     Source = iota // nobody decided: there was nothing to decide, or an error
	SourceRedis                  // Redis decided for all replicas
	SourceMemory                 // a Gate in memory decided
	SourceOpen                   // Redis failed, and every undecided policy is Open
	SourceLocal                  // Redis failed, and this process decided alone for a Local policy
	SourceClosed                 // Redis failed, and an undecided policy is Closed
	SourceCache                  // this process remembered a denial of Redis that only time lifts
	SourceOverload               // this process could not ask Redis in time, and denied; see ErrOverloaded
)

var sources = [...]string{"none", "redis", "memory", "open", "local", "closed", "cache", "overload"}

// String returns the source in one lower-case word.
func (s Source) String() string { return enum.Name(sources[:], int(s)) }

// Result is the outcome of one charge.
type Result struct {
	Policy *Policy
	// Allowed reports whether this charge fits. If the Decision allows, all charges except shadows
	// fit.
	Allowed bool
	// Source says who decided on this charge.
	Source Source
	// Known reports whether Used, Remaining, NextAfter and ResetAfter are known. They are 0 if not:
	// for Unlimited, for an Open or Closed policy while Redis fails, and for a remembered denial
	// that does not say how the key stands now.
	Known bool

	defers   bool          // reservations may be for later
	violated uint8         // a bit for each window
	reason   uint8         // of the Cooldown that denies, or 0
	reset    int64         // the end of a window or a period with which Remaining is Limit, or 0; see ResetTime
	kept     time.Duration // see KeptAfter

	// Limit is how many units an untouched key allows at once. Used + Remaining is Limit. Used
	// exceeds Limit, and Remaining is 0, while there are debts or reservations for later, and after
	// the limit was lowered. For a SlidingLog, Limit, Window and Used describe its longest window,
	// and Remaining is the least of all windows.
	Limit, Used, Remaining int64
	// Raised is the part of Limit by which Gate.Adjust has raised it. Held is the part of Used that
	// reservations hold under PolicyConfig.Hold, and may give back.
	Raised, Held int64
	// Window is the window of Limit. For a bucket it is the time in which an exhausted one refills,
	// Never if it does not refill. For a Calendar it is the length of the present period, such as
	// 28 to 31 days for a month.
	Window time.Duration
	// RetryAfter is the wait after which the same charge fits if nothing else is spent: 0 if it
	// fits now, Never if waiting does not help. After a Reserve it is the wait after which the same
	// Reserve succeeds. It is a whole number of microseconds, rounded up. Where the charge fits
	// without what is Held, it is at most an estimate of how long that stays held; see docs/limits.md.
	RetryAfter time.Duration
	// NextAfter is the wait until Remaining exceeds what it is now: 0 if Remaining is Limit or nothing
	// is used, Never if it will not, as where a raise ends before the window does.
	NextAfter time.Duration
	// ResetAfter is the wait until Remaining is Limit, in every window of a SlidingLog. It is 0 for
	// an untouched quota, and Never if that does not come.
	ResetAfter time.Duration
	// Delay is how long after a Reserve this charge may act. It is 0 for all other operations.
	Delay time.Duration
}

// Violates reports whether window i of a SlidingLog has no room for the charge. All other
// algorithms have the one window 0. A remembered denial reports the windows that had no room then.
func (r Result) Violates(i int) bool {
	return !r.Allowed && i >= 0 && i < algorithm.MaxWindows && r.violated&(1<<i) != 0
}

// KeptAfter returns the wait in place of RetryAfter if all that is Held is kept. It is 0 if RetryAfter
// is no estimate of when some of that comes back.
func (r Result) KeptAfter() time.Duration { return r.kept }

// ResetTime returns the end of the window of a FixedWindow, or of the period of a Calendar, with which
// Remaining is Limit: by the clock of Redis, or of the Gate in memory. It returns false if ResetAfter is
// no such end.
func (r Result) ResetTime() (end time.Time, ok bool) {
	if r.reset == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(r.reset), true
}

// Decision is the outcome of the charges of one request. It is a value and may be copied. The zero
// value denies and has no results.
type Decision struct {
	// Allowed reports whether the request may go on. If so, all charges are spent. Otherwise none
	// is.
	Allowed bool
	// Source says who decided.
	Source Source
	// Cause is why failure modes decided. It is nil if they did not.
	Cause error

	later  time.Duration // until all charges fit, if raises that end make that longer; otherwise 0
	n      int
	first  Result // of most requests the only one: every copy of a Decision has room for it
	others []Result
}

// Len returns the number of results. There is one for each charge.
func (d *Decision) Len() int { return d.n }

// At returns the result of charge i. It panics if i is not below Len.
func (d *Decision) At(i int) Result { return *d.at(i) }

func (d *Decision) at(i int) *Result {
	if i == 0 && d.n > 0 {
		return &d.first
	}
	return &d.others[i-1]
}

func (d *Decision) resize(n int) {
	d.n = n
	if n > 1 {
		d.others = make([]Result, n-1)
	}
}

// Results returns an iterator over the indexes and results of the charges, in the order of the
// charges.
func (d *Decision) Results() iter.Seq2[int, Result] {
	return func(yield func(int, Result) bool) {
		for i := range d.n {
			if !yield(i, *d.at(i)) {
				return
			}
		}
	}
}

// RetryAfter returns the largest wait over the charges that deny, Never if waiting does not help,
// and 0 for an admitted request. It is longer if another charge fits now, and no more by then,
// because a raise of its limit will have ended.
func (d *Decision) RetryAfter() (wait time.Duration) {
	if d.Allowed {
		return 0
	}
	wait = d.later
	for i := range d.n {
		if r := d.at(i); r.denies() {
			wait = max(wait, r.RetryAfter)
		}
	}
	return wait
}

// denies reports whether the charge has no room and its policy is no shadow.
func (r *Result) denies() bool { return !r.Allowed && !r.Policy.cfg.Shadow }

// delay returns the longest delay of all charges except shadows.
func (d *Decision) delay() (longest time.Duration) {
	for i := range d.n {
		if r := d.at(i); !r.Policy.cfg.Shadow {
			longest = max(longest, r.Delay)
		}
	}
	return longest
}

// stateless fills in the outcome of an algorithm without state.
func (r *Result) stateless(denies bool) {
	r.Allowed = !denies
	if denies {
		r.Known = true
		r.violated = 1
		r.Window = Never
		r.RetryAfter = Never
		r.NextAfter = Never
		r.ResetAfter = Never
	}
}

// read fills in the outcome of a charge.
func (r *Result) read(c *charge, p *inquiry) {
	if c.failed {
		r.unanswered(c, p.cause)
		return
	}
	limit := c.RaisedLimit()
	reading := limit.Read(c.Reply, c.Limit.Cost(c.Spent), c.Units)
	if c.clamps && c.Adjusts {
		reading.RetryAfter = algorithm.QuotaOf(limit).Later(c.Reply, c.Units, 0, true)
	}
	fits := c.Fits
	if p.op == algorithm.Reserve {
		fits = r.reserve(c, &reading, p.whole[0].Bound)
	}
	if p.beside {
		r.Raised = c.Raised()
		if c.Held > 0 {
			reading.Await(c.Held, c.Units, limit.Capacity(), c.from.policy.held.Wait(c.from.policy.cfg.Hold))
		}
		r.Held = reading.Held
	}
	r.Allowed = fits
	r.Known = true
	r.Limit = reading.Limit
	r.Window = reading.Window
	r.Used = reading.Used
	r.Remaining = reading.Remaining
	r.NextAfter = reading.NextAfter
	r.ResetAfter = reading.ResetAfter
	r.reset = reading.Reset
	if !fits {
		r.RetryAfter = reading.RetryAfter
		r.kept = reading.KeptAfter
		r.violated = max(1, reading.Violated)
		r.reason = reading.Reason
	}
	if c.local {
		r.Source = SourceLocal
		if r.RetryAfter == Never && (c.Units <= c.whole || c.from.policy.cfg.Raisable) {
			r.RetryAfter = closedRetry // only the share of this process is too small, or it knows no raise
		}
	}
}

// unanswered fills in what a failure mode says about a charge that nobody decided.
func (r *Result) unanswered(c *charge, cause error) {
	r.Limit, r.Window = quota(c.Limit)
	r.Source = SourceOpen
	r.Allowed = c.mode(cause) == FailOpen
	if !r.Allowed {
		r.Source = denier(cause)
		r.violated = 1
		r.RetryAfter = closedRetry
	}
}

// reserve sets when a charge of Reserve may act or fits, and reports whether it may act within bound,
// in microseconds. If another request denied before, the charge was peeked at, which knows no bound.
// Only buckets act later.
func (r *Result) reserve(c *charge, reading *algorithm.Reading, bound int64) (fits bool) {
	bucket, defers := c.Limit.(*algorithm.TokenBucket)
	if r.defers = defers; !defers {
		return c.Fits
	}
	longest := time.Duration(bound) * time.Microsecond
	reading.RetryAfter = max(0, bucket.RetryReserve(*reading, longest))
	fits = reading.RetryAfter == 0
	if fits && c.Spent > 0 {
		r.Delay = reading.Delay
	}
	return fits
}

// hopeless reports whether a limit of Redis or of memory denied that could have reserved for later.
// The share that this process has while Redis fails is worth another try.
func (d *Decision) hopeless() bool {
	for i := range d.n {
		if r := d.at(i); r.denies() && r.defers && r.kept == 0 && r.Source != SourceLocal {
			return true
		}
	}
	return false
}
