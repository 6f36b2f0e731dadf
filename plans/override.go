package plans

import (
	"encoding/json"
	"errors"
	"fmt"
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
	// Limits replace single limits of the plan, by the names of policies, and Caps single caps. A
	// limit that cannot stand in a file, such as a core.Block, is an error. A Calendar without an
	// Anchor begins its periods where that of the plan does.
	Limits map[string]core.Algorithm
	Caps   map[string]Cap
	// Until ends the override, by Redis's clock. The zero time is never.
	Until time.Time
}

const emptyOverride = "is empty: it must have a Plan, Limits or Caps"

// own returns the limits and caps of the override.
func (o Override) own() Plan { return Plan{o.Limits, o.Caps} }

// check returns every fault of the override.
func (o Override) check(set *Set) error {
	const path = "override."
	own := o.own()
	faults := own.check(path)
	if o.Plan == "" && len(o.Limits)+len(o.Caps) == 0 {
		faults = append(faults, fault{"override", emptyOverride})
	}
	faults = append(faults, namesOf(set).checkKept(path, own)...)
	switch year := o.Until.UTC().Year(); {
	case o.Until.IsZero():
	case !o.Until.After(time.Now()):
		faults = append(faults, fault{path + "until", "is over: " + o.Until.Format(time.RFC3339Nano)})
	case year > maxYear:
		faults = append(faults, fault{path + "until",
			fmt.Sprintf("is in the year %d: it must be at most %d", year, maxYear)})
	}
	err := joined("", faults, nil)
	if set.plans[o.Plan] == nil && o.Plan != "" {
		err = errors.Join(fmt.Errorf("%w: override.plan is %.80q", ErrUnknownPlan, o.Plan), err)
	}
	return err
}

// MarshalText returns the override in the form of a file, as Redis keeps it. The error is that of a
// limit that cannot stand in a file.
func (o Override) MarshalText() ([]byte, error) {
	limits := make(map[string]any)
	for _, name := range sortedKeys(o.Limits) {
		limit, err := formOf(o.Limits[name])
		if err != nil {
			return nil, fmt.Errorf("plans: override.limits.%s %w", name, err)
		}
		limits[name] = limit
	}
	form := struct {
		Plan   string         `json:"plan,omitempty"`
		Limits map[string]any `json:"limits,omitempty"`
		Caps   map[string]Cap `json:"caps,omitempty"`
		Until  time.Time      `json:"until,omitzero"`
	}{o.Plan, limits, o.Caps, o.Until.UTC()} // its zone may have seconds
	text, err := json.Marshal(form)
	if err == nil && len(text) > maxOverride {
		err = fmt.Errorf("it has %d bytes, more than %d", len(text), maxOverride)
	}
	return text, prefixed("plans: override: ", err)
}

// UnmarshalText reads an override in the form of a file, in YAML or JSON, such as
//
//	{limits: {api: {rate: 200, per: 1m}}, caps: {streams: 5}, until: 2026-12-31T00:00:00Z}
//
// The error is every fault of it.
func (o *Override) UnmarshalText(text []byte) error {
	var read Override
	r := newReader()
	if root := r.parse(text); root != nil {
		var p Plan
		r.mapping("", root, r.planFields(&p, map[string]readFunc{
			"plan": func(path string, n ast.Node) { read.Plan = r.text(path, n) },
			"until": func(path string, n ast.Node) {
				var err error
				if read.Until, err = time.Parse(time.RFC3339Nano, r.text(path, n)); err != nil {
					r.fault(path, "is %s: it must be a time as in RFC 3339", describe(n))
				}
			},
		}))
		r.add(p.check(""))
		read.Limits, read.Caps = p.Limits, p.Caps
		if read.Plan == "" && len(read.Limits)+len(read.Caps) == 0 && len(r.faults) == 0 {
			r.fault("", emptyOverride)
		}
	}
	if len(r.faults) > 0 {
		return joined("override: ", r.faults, nil)
	}
	*o = read
	return nil
}
