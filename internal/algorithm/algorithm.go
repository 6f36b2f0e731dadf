// Package algorithm counts every limit once more in plain Go. The memory gate runs on it, and the Lua scripts are
// tested against it: for equal states and times both give equal replies.
//
// Time is integer microseconds on one clock. Lengths that are not whole microseconds are a whole number and a
// fraction of a limit's denominator, so that every comparison is exact.
package algorithm

import (
	"fmt"
	"math"
	"time"
)

// Never is the wait for what waiting does not bring.
const Never = time.Duration(math.MaxInt64)

// Longest is the longest length of time that a limit can speak of: 100 years of 365.25 days.
const Longest = 36525 * 24 * time.Hour

const longest = int64(Longest / time.Microsecond)

// MaxUnits is the largest number of units that a token bucket can speak of: scripts count in float64.
const MaxUnits = 1<<53 - 1

// MaxCount is the largest number of units that a counter can speak of. Sums of a few stay below 2^53.
const MaxCount = 1_000_000_000_000_000

// Fault is what is wrong with one field of a limit.
type Fault struct{ Field, Problem string }

func (f *Fault) Error() string { return f.Field + " " + f.Problem }

// check is a fault of a field, if it is one.
func check(wrong bool, field, format string, args ...any) error {
	if wrong {
		return &Fault{field, fmt.Sprintf(format, args...)}
	}
	return nil
}

// Limit is a validated limit of one algorithm: what it allows, and the arithmetic of it. It is immutable.
// The methods that take a State take one that the same algorithm's NewState made.
type Limit interface {
	// Tag names the algorithm and the layout of its state. It is part of every key's name, so that a changed
	// algorithm never meets old state.
	Tag() string
	// Script is the algorithm's name in the scripts.
	Script() string
	// Parameters appends the limit's parameters in the order in which the script reads them. The first is the
	// denominator of the costs' fractions, 0 if they have none.
	Parameters([]int64) []int64
	// Fields is the number of integers in a charge's reply. The last is the receipt, 0 where nothing was charged.
	Fields() int
	// Denominator is that of the fractions of this limit's costs.
	Denominator() int64
	// Cost is the cost of n units, n >= 0. Of more units than ever fit it is a cost that never fits.
	Cost(n int64) Cost
	// Capacity is the number of units that an untouched key has.
	Capacity() int64
	// Window is how long an exhausted limit takes to be whole again, Never if it does not.
	Window() time.Duration
	// Share is the part of the limit that one of n processes may allow when each decides alone.
	Share(n int64) Limit

	NewState() State
	// Find brings the state to now as this limit sees it: what the methods below speak of. It says whether it changed what is
	// kept, which it does only where a clock step left it beyond reach, or a window has another width.
	Find(s State, now int64) (changed bool)
	// Reply appends the charge's reply, for a cost that nothing is charged of yet.
	Reply(s State, c Cost, reply []int64) []int64
	Fits(s State, c Cost, t Terms) bool
	// Commit charges the cost and returns the receipt to give it back with. By Force it charges what is possible.
	Commit(s State, c Cost, t Terms) int64
	// Give gives back the cost of the charge that has this receipt, as far as it still counts, and says whether that was
	// anything.
	Give(s State, c Cost, receipt int64) bool

	// Read says what a charge's reply means once charged was charged, to a caller who wants n units.
	Read(reply []int64, charged Cost, n int64) Reading
}

// Terms are how charges are asked for.
type Terms struct {
	Operation Operation
	Bound     int64 // of AtMost: how often; of Reserve: microseconds
	Receipts  bool  // the charges may be given back
}

// Periodic is a limit that holds for a time only, and knows its successor. Its other methods speak of that time.
type Periodic interface {
	Limit
	// Period is the time for which the limit holds, in microseconds, the end excluded.
	Period() (from, until int64)
	// At is the limit that holds at now.
	At(now int64) Limit
}

// State is one key's state.
type State interface {
	// Expires is the time in microseconds from which on the state is as good as none.
	Expires() int64
	// Empty says whether nothing counts, so that the state can be forgotten.
	Empty() bool
	// Value is the state as the script stores it.
	Value() string
	// Spent is how much of the limit is used at now, as far as it was found last: 0 of an untouched key, 1 and more
	// of an exhausted one.
	Spent(now int64) float64
}

// Cost is a length or number with an exact fraction: Whole + Fraction/denominator, 0 <= Fraction < denominator.
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

func (c Cost) compare(d Cost) int {
	switch {
	case c.Whole < d.Whole, c.Whole == d.Whole && c.Fraction < d.Fraction:
		return -1
	case c == d:
		return 0
	}
	return 1
}

// ceil is the cost rounded up to a whole number.
func (c Cost) ceil() int64 {
	if c.Fraction > 0 {
		return c.Whole + 1
	}
	return c.Whole
}

// Reading is what one reply says in units and durations. Waits are whole microseconds, rounded up.
type Reading struct {
	Limit, Used, Remaining int64
	// Window is how long the limit that these speak of takes to be whole again.
	Window time.Duration
	// Violated has bit i set if window i of several has no room for the units asked for.
	Violated uint8
	// Delay is the wait that a reservation of the units asked for means, if it can be had.
	Delay time.Duration
	// RetryAfter is the wait until the units asked for fit, 0 if they do, Never if waiting does not help.
	RetryAfter time.Duration
	// NextAfter is the wait until one unit more than Remaining fits, 0 if none is missing.
	NextAfter time.Duration
	// ResetAfter is the wait until the whole limit is there again.
	ResetAfter time.Duration
}

// counted is the cost of n units where units are counted, of at most that many.
func counted(n, most int64) Cost { return Cost{min(n, most+1), 0} }

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
