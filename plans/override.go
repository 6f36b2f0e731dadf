package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/core"
)

// maxOverride is the largest override in bytes.
const maxOverride = 64 << 10

const maxYear = 9999 // of RFC 3339

// Override is what holds for one tenant instead of its plan, such as a contract of its own, or a
// higher limit for a day.
type Override struct {
	// Plan names another plan. Empty leaves the tenant the plan that it has.
	Plan string
	// Limits replace single limits of the plan, by the names of policies, and Caps single caps.
	// They hold beside a shadow plan too. A limit that cannot stand in a file, such as a
	// core.Block, is an error.
	Limits map[string]core.Algorithm
	Caps   map[string]int64
	// Until ends the override, by Redis's clock. The zero time is never.
	Until time.Time
}

// stored is an Override that this process knows.
type stored struct {
	Override
	text  string        // as it is stored
	until time.Duration // when it ends, by Plans.now; 0 is never
}

// holds reports whether there is an override that has not ended. It reads the clock only if there
// is one with an end.
func (s *stored) holds(p *Plans) bool {
	return s != nil && (s.until == 0 || p.now() < s.until)
}

// SetOverride replaces the override of a tenant. This process obeys it at once, and every other one
// of the same Client within a second. If the error is one of Redis, the override may be set or not;
// it does no harm to set it again.
func (p *Plans) SetOverride(ctx context.Context, tenant string, o Override) error {
	id, err := named(tenant)
	if err != nil {
		return err
	}
	text, err := p.encode(o)
	if err != nil {
		return err
	}
	set, err := p.store.set(ctx, id.name, text, o.Until)
	switch {
	case err != nil:
		return fmt.Errorf("plans: set override: %w", err)
	case !set:
		return fmt.Errorf("plans: override.until is over by the clock of Redis: %s",
			o.Until.Format(time.RFC3339Nano))
	}
	p.tenants.changed(id.name)
	return nil
}

// DeleteOverride deletes the override of a tenant, and reports whether there was one. It spreads as
// SetOverride does.
func (p *Plans) DeleteOverride(ctx context.Context, tenant string) (was bool, err error) {
	id, err := named(tenant)
	if err != nil {
		return false, err
	}
	if was, err = p.store.remove(ctx, id.name); err != nil {
		return false, fmt.Errorf("plans: delete override: %w", err)
	}
	p.tenants.changed(id.name)
	return was, nil
}

// Override returns the override of a tenant, and whether there is one. It asks Redis.
func (p *Plans) Override(ctx context.Context, tenant string) (Override, bool, error) {
	id, err := named(tenant)
	if err != nil {
		return Override{}, false, err
	}
	text, _, err := p.store.get(ctx, id.name)
	if err != nil || text == "" {
		return Override{}, false, prefixed("plans: read override: ", err)
	}
	o, err := decode(text)
	return o, err == nil, err
}

// Refresh makes every process ask Resolve again about a tenant, within a second: its plan has
// changed. Without it they ask when Config.TTL has passed.
func (p *Plans) Refresh(ctx context.Context, tenant string) error {
	id, err := named(tenant)
	if err != nil {
		return err
	}
	if err := p.store.touch(ctx, id.name); err != nil {
		return fmt.Errorf("plans: refresh: %w", err)
	}
	p.tenants.changed(id.name)
	return nil
}

func prefixed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%w", prefix, err)
}

// encode returns an override in the form of a file, or every fault of it.
func (p *Plans) encode(o Override) (string, error) {
	const path = "override."
	faults := checkLimits(path, o.Limits, o.Caps)
	faults = append(faults, p.unknownNames(path, o.Limits, o.Caps)...)
	form, limits := make(map[string]any), make(map[string]any)
	if o.Plan == "" && len(o.Limits) == 0 && len(o.Caps) == 0 {
		faults = append(faults, fault{"override", "is empty: it must have a Plan, Limits or Caps"})
	}
	if o.Plan != "" {
		form["plan"] = o.Plan
	}
	for _, name := range sortedKeys(o.Limits) {
		limit, err := formOf(o.Limits[name])
		if err != nil && len(checkLimit("", o.Limits[name])) == 0 {
			faults = append(faults, fault{path + "limits." + name, err.Error()})
		}
		limits[name] = limit
	}
	if len(limits) > 0 {
		form["limits"] = limits
	}
	if len(o.Caps) > 0 {
		form["caps"] = o.Caps
	}
	if !o.Until.IsZero() {
		form["until"] = o.Until.UTC().Format(time.RFC3339Nano) // a zone may have seconds
		if !o.Until.After(time.Now()) {
			faults = append(faults, fault{"override.until", "is over: " + form["until"].(string)})
		} else if year := o.Until.UTC().Year(); year > maxYear {
			faults = append(faults, fault{"override.until",
				fmt.Sprintf("is in the year %d: it must be at most %d", year, maxYear)})
		}
	}
	err := joined("", faults, nil)
	if p.current.Load().plans[o.Plan] == nil && o.Plan != "" {
		err = errors.Join(fmt.Errorf("%w: override.plan is %.80q", ErrUnknownPlan, o.Plan), err)
	}
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(form)
	if err == nil && len(text) > maxOverride {
		err = fmt.Errorf("it has %d bytes, more than %d", len(text), maxOverride)
	}
	if err != nil {
		return "", fmt.Errorf("plans: override: %w", err)
	}
	return string(text), nil
}

// decode returns an override that is stored, or every fault of it.
func decode(text string) (o Override, err error) {
	r := &reader{lines: make(map[string]int)}
	if root := r.parse([]byte(text)); root != nil {
		r.mapping("", root, r.planFields(&o.Limits, &o.Caps, map[string]readFunc{
			"plan": func(path string, n ast.Node) { o.Plan = r.text(path, n) },
			"until": func(path string, n ast.Node) {
				var err error
				if o.Until, err = time.Parse(time.RFC3339Nano, r.text(path, n)); err != nil {
					r.fault(path, "is %s: it must be a time as in RFC 3339", describe(n))
				}
			},
		}))
		r.add(checkLimits("", o.Limits, o.Caps))
	}
	return o, joined("override: ", r.faults, nil)
}

// readOverride returns the override of a tenant, or nil. It keeps the last one if that is stored.
func (p *Plans) readOverride(
	ctx context.Context, tenant string, last *stored,
) (*stored, error) {
	if !p.store.healthy() {
		return nil, errors.New("plans: read override: Redis does not answer")
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	text, left, err := p.store.get(ctx, tenant)
	if err != nil {
		return nil, fmt.Errorf("plans: read override: %w", err)
	}
	if text == "" {
		return nil, nil
	}
	s := &stored{text: text}
	if last != nil && last.text == text {
		s.Override, s.text = last.Override, last.text
	} else if s.Override, err = decode(text); err != nil {
		return nil, err
	}
	if left > 0 {
		s.until = p.now() + left
	}
	return s, nil
}

// tellOfOverride tells the observer what has become of a tenant's override.
func (p *Plans) tellOfOverride(tenant string, last, next *stored) {
	switch {
	case next != nil && (last == nil || last.text != next.text):
		o := next.Override
		o.Limits, o.Caps = cloned(o.Limits), maps.Clone(o.Caps)
		p.tell(Event{Kind: EventOverrideApplied, Tenant: tenant, Plan: o.Plan, Override: &o})
	case next == nil && last != nil:
		p.tell(Event{Kind: EventOverrideEnded, Tenant: tenant})
	}
}
