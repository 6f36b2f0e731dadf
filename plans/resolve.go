package plans

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/plans/internal/tenants"
)

const retryAfter = time.Second // after a failure

// state is what is known of a tenant. It is immutable.
type state struct {
	plan         string        // as Resolve said; empty is none
	subscription *subscription // or nil
	resolved     bool          // Resolve has succeeded, now or before
	answered     time.Duration // until then the answer of Resolve is fresh, whatever else has failed
	override     *stored
	err          error // why the plan is not known, if it was never resolved
}

// stored is an Override that this process knows.
type stored struct {
	Override
	replaces *plan         // the Override's own limits and caps; nil if it has none
	text     string        // as it is stored
	until    time.Duration // when it ends, by Book.now; 0 is never
}

// now is a time that never goes back.
func (b *Book) now() time.Duration { return time.Since(b.start) }

// holds reports whether there is an override that has not ended. It reads the clock only if there
// is one with an end.
func (b *Book) holds(o *stored) bool {
	return o != nil && (o.until == 0 || b.now() < o.until)
}

// learn learns about a tenant.
func (b *Book) learn(
	ctx context.Context, tenant string, last *state, unchanged bool,
) (a tenants.Answer[*state]) {
	if last == nil {
		last = new(state)
	}
	s := &state{plan: last.plan, subscription: last.subscription, resolved: last.resolved}
	a.Value, a.For = s, b.cfg.TTL-rand.N(b.cfg.TTL/10+1)

	override, err := b.readOverride(ctx, tenant, last.override)
	if err != nil {
		a.Failed, s.override = true, last.override
		if b.store.healthy() { // otherwise the feed tells of it
			b.cfg.tell(ctx, Event{Op: OpOverride, Tenant: tenant, Err: err})
		}
	} else {
		s.override = override
	}
	set := b.Set()
	if b.holds(s.override) && s.override.Plan != "" && set.plans[s.override.Plan] == nil {
		err := fmt.Errorf("%w: the override names %.80q", ErrUnknownPlan, s.override.Plan)
		b.cfg.tell(ctx, Event{Op: OpOverride, Tenant: tenant, Err: err})
	}
	if unchanged && last.answered > b.now() {
		s.answered = last.answered // only the override is not known
		a.For = min(a.For, s.answered-b.now())
	} else {
		a.Failed = !b.ask(ctx, tenant, s, set, a.For) || a.Failed
	}
	if a.Failed {
		a.For = min(a.For, retryAfter)
	}
	return a
}

// ask asks Resolve for a tenant's plan, and reports whether it knows.
func (b *Book) ask(
	ctx context.Context, tenant string, s *state, set *Set, ttl time.Duration,
) (known bool) {
	if b.cfg.Subscription == nil {
		return true
	}
	name, subscription, err := b.resolve(ctx, set, tenant)
	if err == nil {
		s.plan, s.subscription = name, subscription
		s.resolved, s.answered = true, b.now()+ttl
		return true
	}
	if !s.resolved && b.cfg.OnFailure == OnFailureRefuse {
		s.err = err
	}
	b.cfg.tell(ctx, Event{Op: OpResolve, Tenant: tenant, Err: err})
	return false
}

// resolve calls Config.Subscription, whose result it checks.
func (b *Book) resolve(
	ctx context.Context, set *Set, tenant string,
) (name string, known *subscription, err error) {
	ctx, cancel := b.pulse.Within(ctx, b.cfg.Timeout, grace/2)
	defer cancel()
	defer func() {
		if v := recover(); v != nil { // nobody else could recover it in this goroutine
			err = fmt.Errorf("plans: resolve: panic: %v", v)
		}
	}()
	s, err := b.cfg.Subscription(ctx, tenant)
	if err != nil {
		return "", nil, fmt.Errorf("plans: resolve: %w", err)
	}
	if s.Plan != "" {
		plan := set.plans[s.Plan]
		if plan == nil {
			return "", nil, fmt.Errorf("%w: Resolve returned %.80q", ErrUnknownPlan, s.Plan)
		}
		name = plan.name // is the same string for all tenants
	}
	known, err = subscriptionOf(set, s)
	return name, known, err
}

// readOverride returns the override of a tenant, or nil. It keeps the last one if that is stored.
func (b *Book) readOverride(
	ctx context.Context, tenant string, last *stored,
) (*stored, error) {
	if !b.store.healthy() {
		return nil, errors.New("plans: read override: Redis does not answer")
	}
	text, left, is, err := b.overrideText(ctx, tenant)
	if err != nil || !is {
		return nil, err
	}
	s := &stored{text: text}
	if last != nil && last.text == text {
		s.Override, s.replaces, s.text = last.Override, last.replaces, last.text
	} else if err = s.UnmarshalText([]byte(text)); err != nil {
		return nil, err
	} else if len(s.Limits)+len(s.Caps) > 0 {
		s.replaces = newPlan(s.own(), "")
	}
	if left > 0 {
		s.until = b.now() + left
	}
	return s, nil
}

// overrideText asks for the text of a tenant's override, for how long it lasts, and whether there is one.
func (b *Book) overrideText(
	ctx context.Context, tenant string,
) (text string, left time.Duration, is bool, err error) {
	ctx, cancel := b.pulse.Within(ctx, b.cfg.Timeout, grace/2)
	defer cancel()
	text, left, is, err = b.store.get(ctx, tenant)
	return text, left, is, prefixed("plans: read override: ", err)
}

// planOf returns what holds for a tenant by a Set: its plan, or nil if it has none, and the limits
// and caps of its override, or nil.
func (b *Book) planOf(set *Set, s *state) (own, override *plan, err error) {
	if b.holds(s.override) {
		override = s.override.replaces
		own = set.plans[s.override.Plan]
	}
	name := b.name(s)
	if own == nil {
		own = set.plans[name]
	}
	switch { // a tenant without a plan of its own, or with one that the Set has no longer
	case own != nil:
	case s.err != nil:
		return nil, nil, s.err
	case name != "" && b.cfg.OnFailure == OnFailureRefuse:
		return nil, nil, fmt.Errorf("%w: the Set has %.80q no longer", ErrUnknownPlan, name)
	}
	return own, override, nil
}
