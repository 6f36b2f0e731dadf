package plans

import (
	"fmt"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
)

// SetConfig configures a Set.
type SetConfig struct {
	// Default names the plan of tenants that have no other. It is required.
	Default string
	// Plans are the plans by name, which has 1 to 64 of the characters A-Z a-z 0-9 _ . and -. At
	// least one is required.
	Plans map[string]Plan
	// Routes are the routes of the requests that a limit counts, by its name: a pattern as
	// keyfunc.Route has it, such as /v1/reports, with or without a method and a space before it. GET
	// counts HEAD too. A limit that is not here counts requests for all routes. See nethttp.Quotas.
	Routes map[string][]string
}

// Set is a validated set of plans. NewSet, ParseSet or ReadSet makes one. It is immutable and safe
// for concurrent use.
type Set struct {
	standard *plan // of tenants that have no other
	plans    map[string]*plan
	routes   map[string][]string
}

// plan is a Plan of a Set, or what an Override replaces of one. A request that is decided by it cannot
// change it.
type plan struct {
	Plan                                // whose Subscribed limits are Calendars
	written    Plan                     // as it was given, of a Set's plan
	name       string                   // is empty for an Override
	subscribed map[string]core.Calendar // the Subscribed ones
	of         *plan                    // of the Set, if this one is for some anchors

	mu       sync.Mutex
	anchored map[anchors]*plan
}

// newPlan returns a plan that shares nothing with p.
func newPlan(p Plan, name string) *plan {
	made := &plan{Plan: p.clone(), name: name}
	for name, limit := range made.Limits {
		if s, ok := limit.(Subscribed); ok {
			if made.subscribed == nil {
				made.subscribed = make(map[string]core.Calendar)
			}
			made.subscribed[name] = s.Calendar
			made.Limits[name] = s.Calendar
		}
	}
	return made
}

// NewSet returns a Set, or every fault of the configuration at once. A fault names its field as the
// files of ParseSet do, such as plans.free.limits.api.rate.
func NewSet(cfg SetConfig) (*Set, error) {
	set, faults := compile(cfg, nil)
	return set, joined("", faults, nil)
}

// Names returns the names of the plans in alphabetic order.
func (s *Set) Names() []string { return sortedKeys(s.plans) }

// Default returns the name of the plan of tenants that have no other.
func (s *Set) Default() string { return s.standard.name }

// Plan returns a copy of the plan of a name, and whether there is one.
func (s *Set) Plan(name string) (Plan, bool) {
	p, ok := s.plans[name]
	if !ok {
		return Plan{}, false
	}
	return p.written.clone(), true
}

// compile returns a set, or faults. named are the names of the limits that stand in a file, by path.
func compile(cfg SetConfig, named map[string]string) (*Set, []fault) {
	var faults []fault
	set := &Set{
		plans: make(map[string]*plan, len(cfg.Plans)), routes: make(map[string][]string, len(cfg.Routes)),
	}
	if len(cfg.Plans) == 0 {
		faults = append(faults, fault{"plans", "is empty: at least one plan is required"})
	}
	for _, name := range sortedKeys(cfg.Plans) {
		p := cfg.Plans[name]
		name := strings.Clone(name) // so that it does not keep the whole file in memory
		faults = append(faults, checkName("plans", name)...)
		faults = append(faults, p.check("plans."+name+".")...)
		set.plans[name] = newPlan(p, name)
		set.plans[name].written = p.clone()
	}
	faults = append(faults, set.checkNames(named)...)
	faults = append(faults, set.useRoutes(cfg.Routes)...)
	switch set.standard = set.plans[cfg.Default]; {
	case cfg.Default == "":
		faults = append(faults, fault{"default",
			"is missing: it names the plan of tenants that have no other"})
	case set.standard == nil && len(cfg.Plans) > 0:
		faults = append(faults, fault{"default",
			fmt.Sprintf("is %q: there is no such plan", cfg.Default)})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return set, nil
}
