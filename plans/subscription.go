package plans

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/core"
)

// Subscription is which plan a tenant has, and when its periods begin.
type Subscription struct {
	// Plan names the plan. Empty is none, as from Config.Resolve.
	Plan string
	// Anchor is when the first of the tenant's periods begins, such as midnight of the day of the purchase,
	// in the zone of the tenant. Limits whose anchor is the subscription begin their periods on that day
	// of the month, of the year or of the week, and at that time of the day; see Subscribed. The beginning
	// of a later period is one too, except the last day of a month that is too short, such as 28 February
	// after a purchase on the 31st. If it is zero, they begin where those of the calendar do.
	//
	// For a midnight that clocks skip, time.Date may return 23:00 of the day before, where all periods then
	// begin: use the same day of another month, year or week.
	//
	// The zone must be one that each process knows by its name, such as time.UTC or one of
	// time.LoadLocation. time.Local is a fault: a time that a database returns in it needs In.
	//
	// When the Anchor moves, the new periods have counts of their own, so the tenant may spend the
	// limit of the old period and that of the new one. Book.Kept finds the old ones by the old Anchor.
	Anchor time.Time
	// Next names the plan that begins at Renewal, such as after a downgrade. Until then Plan holds,
	// also in processes that ask again only later. If it is empty, Plan stays.
	Next string
	// Renewal is the end of the period that is paid for. It is required if there is a Next. The clock
	// is that of this process, or Config.Clock.
	Renewal time.Time
}

// Subscribed is a Calendar whose periods begin with the subscription of the tenant, and in its time
// zone: a limit of a Plan or of an Override. In a file it is a calendar with anchor: subscription.
// The plans that a Book returns have it as a core.Calendar with the Anchor and the zone of the
// Subscription. A tenant without one, or without an Anchor, has that of the tenant around it in a
// chain, and otherwise the Calendar as it is.
type Subscribed struct {
	core.Calendar // without an Anchor
}

// subscription is what is known of a Subscription besides its plan. It is immutable, except for last.
type subscription struct {
	anchor  time.Time // in a zone of loadZone; may be zero
	next    string    // is empty if no other plan follows
	renewal time.Time

	last atomic.Pointer[plan] // that began with the anchor
}

// subscriptionOf returns what is to be known of a Subscription, nil if that is nothing, or its fault.
func subscriptionOf(set *Set, s Subscription) (*subscription, error) {
	if s.Anchor.IsZero() && s.Next == "" {
		return nil, nil
	}
	known := &subscription{anchor: s.Anchor, renewal: s.Renewal}
	if s.Next != "" {
		next := set.plans[s.Next]
		if next == nil {
			return nil, fmt.Errorf("%w: Subscription.Next is %.80q", ErrUnknownPlan, s.Next)
		}
		if s.Renewal.IsZero() {
			return nil, fmt.Errorf("plans: Subscription.Next is %.80q, and Renewal is zero", s.Next)
		}
		known.next = next.name
	}
	if s.Anchor.IsZero() {
		return known, nil
	}
	in := s.Anchor.Location()
	if year := s.Anchor.Year(); year < 1900 || year > 2200 {
		return nil, fmt.Errorf("plans: Subscription.Anchor is in the year %d: it must be between 1900 and 2200", year)
	}
	if !hasName(in) {
		return nil, fmt.Errorf("plans: Subscription.Anchor is in the time zone %q: it must be in one that each "+
			"process knows by its name, as by Anchor.UTC() or Anchor.In(zone)", in)
	}
	zone, err := loadZone(in.String())
	if err != nil {
		return nil, fmt.Errorf("plans: Subscription.Anchor: %w", err)
	}
	known.anchor = s.Anchor.In(zone)
	return known, nil
}

// name returns the name of the plan that a tenant has by a Set, without its override.
func (b *Book) name(s *state) string {
	if sub := s.subscription; sub != nil && sub.next != "" && !b.cfg.Clock().Before(sub.renewal) {
		return sub.next
	}
	return s.plan
}

// Subscription returns the Subscription of a tenant, as Config.Subscription or Config.Resolve said
// when they were last asked. Its Plan is the one that the tenant has now: that of its override, or the
// default plan if it has none. Next and Renewal are those of a plan that is yet to begin.
func (b *Book) Subscription(ctx context.Context, tenant string) (now Subscription, err error) {
	set := b.Set()
	s, err := b.know(ctx, tenant)
	if err != nil {
		return now, err
	}
	own, _, err := b.planOf(set, s)
	if err != nil {
		return now, err
	}
	now.Plan = cmp.Or(own, set.standard).name
	if s.subscription == nil {
		return now, nil
	}
	now.Anchor = s.subscription.anchor
	if next := s.subscription.next; next != "" && b.name(s) != next {
		now.Next, now.Renewal = next, s.subscription.renewal
	}
	return now, nil
}

// maxAnchored bounds how many anchors a plan keeps its limits for. The days of a month in all time
// zones fit.
const maxAnchored = 16 << 10

// anchors are where periods begin, by their length. Equal periods have equal anchors.
type anchors [core.PeriodYear + 1]time.Time

// begun returns the plan for a tenant with that subscription, which may be nil.
func (p *plan) begun(s *subscription) *plan {
	if s == nil || s.anchor.IsZero() || len(p.subscribed) == 0 {
		return p
	}
	if last := s.last.Load(); last != nil && last.of == p {
		return last
	}
	var at anchors
	for _, c := range p.subscribed {
		if at[c.Every].IsZero() {
			at[c.Every] = reduced(c.Every, s.anchor, s.anchor.Location())
		}
	}
	begun := p.at(at)
	s.last.Store(begun)
	return begun
}

// at returns the plan with its periods at some anchors.
func (p *plan) at(at anchors) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := p.anchored[at]
	if begun != nil {
		return begun
	}
	begun = &plan{Plan: Plan{Limits: maps.Clone(p.Limits), Caps: p.Caps}, name: p.name, of: p}
	for name, c := range p.subscribed {
		c.Anchor = at[c.Every]
		c.In = c.Anchor.Location()
		begun.Limits[name] = c
	}
	if p.anchored == nil || len(p.anchored) == maxAnchored {
		p.anchored = make(map[anchors]*plan)
	}
	p.anchored[at] = begun
	return begun
}

// reduced returns an anchor in a zone of the same periods that depends on nothing but what they depend on,
// so that tenants share it. It must not be one that the clocks of the zone skip.
func reduced(every core.Period, anchor time.Time, in *time.Location) time.Time {
	year, month, day, step := 2000, time.January, 1, 0 // the year has a 29 February
	switch every {
	case core.PeriodDay:
	case core.PeriodWeek:
		day, step = 3+int(anchor.Weekday()+6)%7, 7 // the 3rd is a Monday
	case core.PeriodMonth:
		day = anchor.Day()
	case core.PeriodYear:
		month, day = anchor.Month(), anchor.Day()
	default:
		return anchor
	}
	hour, minute, second := anchor.Clock()
	for n := range 20 {
		at := time.Date(year, month, day+n*step, hour, minute, second, anchor.Nanosecond(), in)
		if h, m, s := at.Clock(); h == hour && m == minute && s == second {
			return at
		}
		if step == 0 {
			year += 4
		}
	}
	return anchor
}
