// Package algorithm implements every limit in plain Go. The store in memory runs on it. The Lua
// scripts are tested against it: for equal states and times both give equal replies.
//
// Time is integer microseconds on one clock. A length that is not whole microseconds is a whole
// number and a fraction of a limit's denominator, so every comparison is exact.
package algorithm

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// Never is the wait of units that no wait can admit.
const Never = time.Duration(math.MaxInt64)

// Longest is the longest length of time in a limit: 100 years of 365.25 days.
const Longest = 36525 * 24 * time.Hour

const longest = int64(Longest / time.Microsecond)

// MaxUnits is the largest number of units of a token bucket, because scripts count in float64.
const MaxUnits = 1<<53 - 1

// MaxCount is the largest number of units of a counter. Sums of a few such numbers stay below 2^53.
const MaxCount = 1_000_000_000_000_000

// Fault is a problem with one field of a limit.
type Fault struct{ Field, Problem string }

func (f *Fault) Error() string { return f.Field + " " + f.Problem }

// faultIf returns a Fault if wrong is true, and otherwise nil.
func faultIf(wrong bool, field, format string, args ...any) error {
	if wrong {
		return &Fault{field, fmt.Sprintf(format, args...)}
	}
	return nil
}

// Limit is a validated, immutable limit of one algorithm.
type Limit interface {
	// Tag names the algorithm and the layout of its state. It is part of every key's name, so a
	// changed algorithm never reads old state.
	Tag() string
	// Script returns the algorithm's name in the scripts.
	Script() string
	// Parameters appends the limit's parameters in the order in which the script reads them. The
	// first is the denominator of the costs' fractions, 0 if they have none.
	Parameters([]int64) []int64
	// Fields returns the number of integers in a charge's reply. The last is the receipt, 0 if
	// nothing was charged.
	Fields() int
	// Denominator returns the denominator of this limit's costs.
	Denominator() int64
	// Cost returns the cost of n units, n >= 0, at most one that never fits and exceeds each debt that
	// Force can leave. Costs below that add up: charges are merged, multiplied and corrected by the
	// difference of units.
	Cost(n int64) Cost
	// Capacity returns the number of units that an untouched key has.
	Capacity() int64
	// Window returns how long an exhausted limit takes to recover fully, Never if it does not.
	Window() time.Duration
	// Share returns the part of the limit for one of n processes that decide alone.
	Share(n int64) Limit

	NewState() State
	// Find computes the state at now under this limit. The state is one that NewState of the same
	// algorithm made. Find reports whether it changed what is stored. Only a clock step or another
	// width of the window does.
	Find(s State, now int64) (changed bool)

	// Read interprets the reply to a charge for a caller that asked for n units, after charged was
	// charged.
	Read(reply []int64, charged Cost, n int64) Reading
}

// traits are what the limits of one algorithm say of themselves. Each limit embeds them.
type traits struct {
	tag, script string
	fields      int
	denominator int64
}

func (t *traits) Tag() string        { return t.tag }
func (t *traits) Script() string     { return t.script }
func (t *traits) Fields() int        { return t.fields }
func (t *traits) Denominator() int64 { return t.denominator }

// State is one key's state: what is stored, and what the last Find made of it, under the limit of that.
type State interface {
	// Reply appends the reply to a charge that has not been committed.
	Reply(c Cost, reply []int64) []int64
	Fits(c Cost, t Terms) bool
	// Commit charges the cost and returns the receipt for a refund. Force charges what the debt
	// allows.
	Commit(c Cost, t Terms) int64
	// Give refunds the cost of the charge with this receipt as far as it still counts. It reports
	// whether anything was refunded.
	Give(c Cost, receipt int64) bool

	// Expires returns the time in microseconds from which the state equals a new one.
	Expires() int64
	// Empty reports whether nothing counts, so that the state can be deleted.
	Empty() bool
	// Value returns the state as the script stores it.
	Value() string
	// Spent returns the used part of the limit at now, before the state expires: 0 for an untouched
	// key, at least 1 for an exhausted one.
	Spent(now int64) float64
}

// Cost is a length of time or a number of units with an exact fraction: Whole +
// Fraction/denominator, 0 <= Fraction < denominator.
type Cost struct{ Whole, Fraction int64 }

func (c Cost) plus(d Cost, denominator int64) Cost {
	c.Whole += d.Whole
	c.Fraction += d.Fraction
	if c.Fraction >= denominator {
		c.Whole++
		c.Fraction -= denominator
	}
	return c
}

func (c Cost) minus(d Cost, denominator int64) Cost {
	c.Whole -= d.Whole
	c.Fraction -= d.Fraction
	if c.Fraction < 0 {
		c.Whole--
		c.Fraction += denominator
	}
	return c
}

// mostCost never fits, and is more than Force charges. Its sum with any level is below 2^53.
const mostCost = longest + 2*longestDebt

// times returns n times the cost, at most mostCost.
func (c Cost) times(n, denominator int64) Cost {
	hi, lo := bits.Mul64(uint64(c.Fraction), uint64(n))
	whole, part := bits.Div64(hi, lo, uint64(denominator))
	hi, lo = bits.Mul64(uint64(c.Whole), uint64(n))
	lo, carry := bits.Add64(lo, whole, 0)
	if hi+carry > 0 || lo > uint64(mostCost) {
		return Cost{mostCost, 0}
	}
	return Cost{int64(lo), int64(part)}
}

func (c Cost) compare(d Cost) int {
	switch {
	case c.Whole < d.Whole, c.Whole == d.Whole && c.Fraction < d.Fraction:
		return -1
	case c == d:
		return 0
	}
	return 1
}

// Reading is a reply in units and durations. Waits are whole microseconds, rounded up.
type Reading struct {
	Limit, Used, Remaining int64
	// Window is how long that limit takes to recover fully.
	Window time.Duration
	// Bit i of Violated is set if window i of a log has no room for the units asked for.
	Violated uint8
	// Delay is the wait of a reservation of the units asked for on a bucket, if it is admitted.
	Delay time.Duration
	// RetryAfter is the wait until the units asked for fit, 0 if they do, Never if waiting does not
	// help.
	RetryAfter time.Duration
	// NextAfter is the wait until one unit more than Remaining fits, 0 if all units remain.
	NextAfter time.Duration
	// ResetAfter is the wait until all units remain.
	ResetAfter time.Duration
	// Reset is when all units remain, in microseconds since 1970, if they come back when a window
	// ends. Otherwise it is 0.
	Reset int64
	// Held is how many of the used units are held. KeptAfter is RetryAfter if they stay held. It is
	// 0 if RetryAfter does not depend on that. See Await.
	Held      int64
	KeptAfter time.Duration
	// Reason is that of the block that denies.
	Reason uint8
}

// Await notes how many units are held, those of the charge included. If the charge has no room and
// n units, at most the capacity of the limit, fit without these, it shortens RetryAfter to that
// wait.
func (r *Reading) Await(held, n, capacity int64, wait time.Duration) {
	r.Held = min(held, r.Used)
	free := r.Remaining + r.Held - max(0, r.Used-r.Limit)
	if n <= capacity && n <= free && wait < r.RetryAfter {
		r.KeptAfter, r.RetryAfter = r.RetryAfter, wait
	}
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func ceilMicros(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}
