package inspect

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/core"
)

// Verdict is what would become of the next request of a subject.
type Verdict struct {
	// Reasons are the limits and caps that would deny it, or let it wait. There are none if it passes.
	Reasons []Reason
	// RetryAfter is the wait after which the limits admit it if nothing else is spent: core.Never if
	// waiting does not help, 0 if none of them denies.
	RetryAfter time.Duration
	// Opens is the first whole second at which they do. It is zero if RetryAfter is 0 or core.Never.
	Opens time.Time
	// Estimated says that RetryAfter counts on what running reservations hold.
	Estimated bool
}

// Passes reports whether the next request would pass at once.
func (v *Verdict) Passes() bool { return len(v.Reasons) == 0 }

// Reason is why the next request would be denied, or would wait. Either Limit or Slots is set.
type Reason struct {
	Limit *Limit
	Slots *Slots
	// RetryAfter and Opens are as in a Verdict, for the Limit alone. When there is room for a slot is
	// not known.
	RetryAfter time.Duration
	Opens      time.Time
}

// verdict returns what would become of the next request.
func (s *Subject) verdict() (v Verdict) {
	for i := range s.Limits {
		l := &s.Limits[i]
		if !l.Denies() {
			continue
		}
		r := Reason{Limit: l, RetryAfter: l.Result.RetryAfter, Opens: s.opens(l.Result.RetryAfter)}
		v.Reasons = append(v.Reasons, r)
		v.RetryAfter = max(v.RetryAfter, r.RetryAfter)
		v.Estimated = v.Estimated || l.KeptAfter > 0
	}
	v.Opens = s.opens(v.RetryAfter)
	for i := range s.Slots {
		if s.Slots[i].IsFull() {
			v.Reasons = append(v.Reasons, Reason{Slots: &s.Slots[i]})
		}
	}
	return v
}

// opens returns the first whole second after a wait, or zero if there is none.
func (s *Subject) opens(wait time.Duration) time.Time {
	if wait <= 0 || wait == core.Never {
		return time.Time{}
	}
	at := s.At.Add(wait)
	if whole := at.Truncate(time.Second); whole.Before(at) {
		return whole.Add(time.Second)
	}
	return at
}

// Rule returns the name of the policy or of the semaphore.
func (r *Reason) Rule() string {
	if r.Slots != nil {
		return r.Slots.Semaphore.Name()
	}
	return r.Limit.Policy.Name()
}

// Text says in a sentence why the next request would be denied.
func (r *Reason) Text() string {
	if r.Slots != nil {
		return r.Slots.why()
	}
	l := r.Limit
	at, name := FormatKey(l.Key), l.Policy.Name()
	switch _, deny := l.Algorithm.(core.DenyAll); {
	case deny:
		return fmt.Sprintf("%s denies everything to %s.", name, at)
	case l.Result.Source == core.SourceClosed:
		return fmt.Sprintf("Redis does not answer, and %s is closed meanwhile.", name)
	case l.Result.Source == core.SourceOverload:
		return fmt.Sprintf("This process cannot ask Redis about %s in time.", name)
	case l.Blocks():
		return fmt.Sprintf("%s blocks %s for %s.", name, at, Wait(r.RetryAfter))
	}
	used := fmt.Sprintf("%s has used %s of %s %s of %s", at,
		Number(l.Result.Used), Number(l.Result.Limit), l.Policy.Unit(), name)
	switch {
	case l.Cost > l.Result.Limit:
		return fmt.Sprintf("A request costs %s, more than the limit: %s.", Number(l.Cost), used)
	case r.RetryAfter == core.Never:
		return used + ", and no wait brings them back."
	}
	return used + "."
}

// why says what the slots lack.
func (s *Slots) why() string {
	for i := len(s.Caps) - 1; i >= 0; i-- {
		if c := &s.Caps[i]; c.IsFull() {
			return fmt.Sprintf("%s holds %d of %d slots of %s, and %d wait.",
				FormatKey(c.Key), c.Used, c.Limit, s.Semaphore.Name(), c.Waiting)
		}
	}
	return fmt.Sprintf("Others wait for a slot of %s before it.", s.Semaphore.Name())
}

// Wait returns a duration for people, rounded up to the second, such as 2 h 5 min.
func Wait(d time.Duration) string {
	if d == core.Never {
		return "ever"
	}
	if d <= 0 {
		return "0 s"
	}
	n := int64((d-1)/time.Second) + 1
	units := []struct {
		name string
		size int64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}}
	for i, u := range units {
		if n < u.size && u.size > 1 {
			continue
		}
		text := fmt.Sprintf("%d %s", n/u.size, u.name)
		if rest := n % u.size; rest > 0 && i+1 < len(units) {
			if next := units[i+1]; rest >= next.size {
				text += fmt.Sprintf(" %d %s", rest/next.size, next.name)
			}
		}
		return text
	}
	return ""
}

// Number returns an integer with a thin space between groups of three digits.
func Number(n int64) string {
	if n == math.MinInt64 {
		return strconv.FormatInt(n, 10)
	}
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return sign + digits
}
