package algorithm

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// FixedWindow counts units in consecutive windows. That of a Calendar holds in one period. That of a
// grant is one window, which is forgotten.
type FixedWindow struct {
	traits
	limit     int64
	raised    int64 // by how many units the limit is raised
	width     int64 // microseconds
	fromFirst bool
	grant     bool
	extends   bool   // a grant ends the width after its last charge, and not after the first
	raises    Raises // that are part of the limit

	calendar      *Calendar // or nil
	start, finish int64     // of the calendar's period, in microseconds since 1970; 0 without one
}

// mostOwed is the largest number of units that a key can have used. No raised limit is as large.
const mostOwed = 4 * MaxCount

// NewFixedWindow validates a limit for each window of the given width. Windows start at multiples
// of the width since 1970. If fromFirst is true, a window starts with the first charge after the
// previous one. NewFixedWindow returns every fault at once.
func NewFixedWindow(limit int64, window time.Duration, fromFirst bool) (*FixedWindow, error) {
	if err := errors.Join(checkLimit("Limit", limit, MaxCount), checkWindow("Window", window)); err != nil {
		return nil, err
	}
	return &FixedWindow{
		traits: windowTraits("fw2"), limit: limit, width: window.Microseconds(), fromFirst: fromFirst,
	}, nil
}

// NewGrant validates a limit that no time gives back. It is forgotten that long after the last charge, or
// 100 years after the first if forgotten is 0. NewGrant returns every fault at once.
func NewGrant(units int64, forgotten time.Duration) (*FixedWindow, error) {
	errs := []error{checkLimit("Burst", units, MaxCount)}
	if forgotten != 0 {
		errs = append(errs, checkWindow("Per", forgotten), faultIf(0 < forgotten && forgotten < time.Millisecond,
			"Per", "is %v: with Rate 0 it must be at least a millisecond", forgotten))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &FixedWindow{
		traits: windowTraits("tf3"), limit: units, grant: true,
		width: cmp.Or(forgotten.Microseconds(), longest), extends: forgotten > 0,
	}, nil
}

func windowTraits(tag string) traits {
	return traits{tag: tag, script: "window", fields: 5, denominator: 1}
}

func checkLimit(field string, limit, most int64) error {
	return errors.Join(
		faultIf(limit < 0, field, "is %d: it must not be negative", limit),
		faultIf(limit == 0, field, "is 0: nothing would ever be allowed (DenyAll is a limit of its own)"),
		faultIf(limit > most, field, "is %d: it must be at most %d", limit, most))
}

func checkWindow(field string, window time.Duration) error {
	switch {
	case window <= 0:
		return &Fault{field, fmt.Sprintf("is %v: it must be positive", window)}
	case window%time.Microsecond != 0:
		return &Fault{field, fmt.Sprintf("is %v: it must be whole microseconds", window)}
	case window > Longest/4:
		return &Fault{field, fmt.Sprintf("is %v: it must be at most 25 years", window)}
	}
	return nil
}

func (f *FixedWindow) Cost(n int64) Cost { return Cost{min(n, mostOwed), 0} }
func (f *FixedWindow) Capacity() int64   { return f.limit }

// Window implements Limit.
func (f *FixedWindow) Window() time.Duration {
	if f.grant {
		return Never
	}
	return micros(f.width)
}

// Forgets reports whether the limit is a grant that is forgotten when nothing is charged for a time.
func (f *FixedWindow) Forgets() bool { return f.extends }

func (f *FixedWindow) Parameters(args []int64) []int64 {
	switch {
	case f.calendar != nil:
		return append(args, 0, f.limit, 0, f.start, f.finish, f.calendar.every.mean())
	case f.extends:
		return append(args, 0, f.limit, 0, -1, f.width, 1)
	case f.grant:
		return append(args, 0, f.limit, 0, -1, f.width, 0)
	case f.fromFirst:
		return append(args, 0, f.limit, -f.width)
	}
	return append(args, 0, f.limit, f.width)
}

// Share returns the n-th part of the limit, at least 1.
func (f *FixedWindow) Share(n int64) Limit {
	if f.calendar != nil {
		return f.calendar.share(n).at(f.start)
	}
	s := *f
	s.limit = max(1, f.limit/n)
	return &s
}

// Read implements Limit.
func (f *FixedWindow) Read(reply []int64, charged Cost, n int64) Reading {
	count, left, debt, finish := reply[0], reply[1], reply[2], reply[3]
	r := Reading{Limit: f.limit, Used: count + charged.Whole, Window: f.Window()}
	r.Remaining = max(0, f.limit-r.Used)
	r.RetryAfter = f.Later(reply, n, 0, false)
	if r.Used > 0 && f.grant {
		r.NextAfter, r.ResetAfter = Never, Never
	} else if r.Used > 0 {
		r.NextAfter = f.Later([]int64{r.Used, left, debt, finish}, r.Remaining+1, 0, false)
		wait := f.next(reply, 1+f.windows(debt))
		r.ResetAfter, r.Reset = micros(wait), finish+wait-left
	}
	return r
}

// Later returns the first wait, at least least, after which n units fit, Never if there is none. The reply
// is one to a charge under the limit. More room comes when a window ends, and less when a raise does. If
// the charge clamps, its units fall with the limit.
func (f *FixedWindow) Later(reply []int64, n int64, least time.Duration, clamps bool) time.Duration {
	from, count, left, debt := ceilMicros(least), reply[0], reply[1], reply[2]
	if n > f.limit && !clamps { // of clamped units a raise may have ended since
		return Never
	}
	limit := f.limit - f.raises.ended(from)
	if clamps {
		n = min(n, limit)
	}
	if (f.grant || from < left) && count+n <= limit {
		return micros(from)
	}
	if f.grant {
		return Never
	}
	for window := int64(1); ; {
		wait := max(from, f.next(reply, window))
		limit = f.limit - f.raises.ended(wait)
		if clamps {
			n = min(n, limit)
		}
		if n > limit {
			return Never
		}
		first := 1 + f.windows(debt+n-limit) // that has room
		if first <= window {
			return micros(wait)
		}
		window = first
	}
}

// unpaid returns what is left of a debt after some windows.
func (f *FixedWindow) unpaid(debt, windows int64) int64 {
	if windows > debt/f.pays() {
		return 0
	}
	return debt - windows*f.pays()
}

// pays returns how much of a debt each window pays.
func (f *FixedWindow) pays() int64 { return f.limit - f.raised }

// length returns the length of the windows that pay a debt.
func (f *FixedWindow) length() int64 {
	if f.calendar != nil {
		return f.calendar.every.mean()
	}
	return f.width
}

// windows returns how many windows pay a debt, 0 if it is not above 0.
func (f *FixedWindow) windows(debt int64) int64 {
	return (max(0, debt) + f.pays() - 1) / f.pays()
}

// next returns the wait until the n-th window after that of a reply begins, at most 100 years.
func (f *FixedWindow) next(reply []int64, n int64) int64 {
	left, finish, length := reply[1], reply[3], f.length()
	switch {
	case n > longest/length:
		return longest
	case n > 1 && f.calendar != nil:
		_, end := f.calendar.period(finish + (n-1)*length - length/2 - 1) // before the middle of that one
		return left + end - finish
	}
	return left + (n-1)*length
}

// Raised returns the limit with that many units more, of which the raises will end.
func (f *FixedWindow) Raised(units int64, raises Raises) *FixedWindow {
	if units == 0 {
		return f
	}
	raised := *f
	raised.limit += units
	raised.raised += units
	raised.raises = raises
	return &raised
}

// After implements Mergeable.
func (f *FixedWindow) After(reply []int64, c Cost) {
	reply[0] += c.Whole
	if f.extends && c.Whole > 0 {
		now := reply[3] - reply[1]
		reply[1], reply[3] = f.width, now+f.width
	}
}
