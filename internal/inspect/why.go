package inspect

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// Verdict is what would become of the next request of a subject.
type Verdict struct {
	// Reasons are the limits and caps that would deny it, or let it wait.
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
	s.follow()
	answered := false
	for i := range s.Limits {
		l := &s.Limits[i]
		answered = answered || l.Then != ""
		if !l.Denies() {
			continue
		}
		from := l.first()
		r := Reason{Limit: l, RetryAfter: from.Result.RetryAfter, Opens: s.opens(&from.Result)}
		v.Reasons = append(v.Reasons, r)
		if r.RetryAfter >= v.RetryAfter {
			v.RetryAfter, v.Opens = r.RetryAfter, r.Opens
		}
		v.Estimated = v.Estimated || from.Result.KeptAfter() > 0
	}
	// A raise of another limit may end before. That wait is also for limits that another answers for.
	if len(v.Reasons) > 0 && s.wait > v.RetryAfter && !answered {
		v.RetryAfter = s.wait
		v.Opens = s.opens(&core.Result{RetryAfter: s.wait})
	}
	for i := range s.Slots {
		if s.Slots[i].IsFull() {
			v.Reasons = append(v.Reasons, Reason{Slots: &s.Slots[i]})
		}
	}
	return v
}

// first returns the limit that admits the next request first: this one, or one that answers for it.
func (l *Limit) first() *Limit {
	if l.soonest != nil && l.soonest.Result.RetryAfter < l.Result.RetryAfter {
		return l.soonest
	}
	return l
}

// follow notes which limits decide in place of those that are spent, as nethttp.Rule.Then has it.
func (s *Subject) follow() {
	for i := range s.Limits {
		l := &s.Limits[i]
		decides, soonest := l, l
		for _, name := range plans.Then(l.Policy.Name()) {
			next := s.limit(name, l.Key)
			if next == nil {
				continue
			}
			next.answers = true
			if !decides.isSpent() {
				continue
			}
			if decides.Result.RetryAfter < soonest.Result.RetryAfter {
				soonest = decides
			}
			decides = next
		}
		if decides != l {
			l.Then = decides.Policy.Name()
			decides.decides = true
			decides.soonest = soonest
		}
	}
}

// limit returns the limit of a key under the policy of a name, or nil.
func (s *Subject) limit(policy string, key core.Key) *Limit {
	for i := range s.Limits {
		if l := &s.Limits[i]; l.Key == key && l.Policy.Name() == policy {
			return l
		}
	}
	return nil
}

// opens returns the first whole second at which a denied charge fits, or zero if there is none.
func (s *Subject) opens(r *core.Result) time.Time {
	if r.RetryAfter <= 0 || r.RetryAfter == core.Never {
		return time.Time{}
	}
	at := s.At.Add(r.RetryAfter)
	if ends, ok := r.ResetTime(); ok && r.RetryAfter == r.ResetAfter {
		// The answer took its time, so at is somewhat late. Where the clocks agree, the end is known.
		if at.Sub(ends).Abs() < maxDrift {
			at = ends
		}
	}
	if whole := at.Truncate(time.Second); whole.Before(at) {
		return whole.Add(time.Second)
	}
	return at
}

// maxDrift is how far Redis's clock and the time of its answer may be from the clock of this process
// for the two to agree.
const maxDrift = 200 * time.Millisecond

// Rule returns the name of the policy or of the semaphore.
func (r *Reason) Rule() string {
	if r.Slots != nil {
		return r.Slots.Semaphore.Name()
	}
	return r.Limit.Policy.Name()
}

// Key returns the key that stands under the rule.
func (r *Reason) Key() core.Key {
	if r.Slots != nil {
		return r.Slots.Key
	}
	return r.Limit.Key
}

// Text says in a sentence why the next request would be denied, with keys as name writes them.
func (r *Reason) Text(name func(core.Key) string) string {
	if r.Slots != nil {
		return r.Slots.why(name)
	}
	l := r.Limit
	at, policy := name(l.Key), l.Policy.Name()
	switch _, deny := l.Algorithm.(core.DenyAll); {
	case deny:
		return fmt.Sprintf("%s denies everything to %s.", policy, at)
	case l.Blocks():
		return fmt.Sprintf("%s blocks %s for %s.", policy, at, Wait(r.RetryAfter))
	}
	used := fmt.Sprintf("%s has used %s of %s %s of %s", at,
		Number(l.Result.Used), Number(l.Result.Limit), l.Policy.Unit(), policy)
	if r.RetryAfter == core.Never {
		return used + ", and no wait brings them back."
	}
	return used + "."
}

// why says what the slots lack.
func (s *Slots) why(name func(core.Key) string) string {
	for i := len(s.Caps) - 1; i >= 0; i-- {
		if c := &s.Caps[i]; c.IsFull() {
			waits := "nobody waits"
			if c.Waiting > 0 {
				waits = fmt.Sprintf("%d wait", c.Waiting)
			}
			return fmt.Sprintf("%s holds %d of %d slots of %s, and %s.",
				name(c.Key), c.Used, c.Limit, s.Semaphore.Name(), waits)
		}
	}
	return fmt.Sprintf("Others wait for a slot of %s before it.", s.Semaphore.Name())
}
