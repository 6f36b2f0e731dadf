package plans

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
)

// Plan is what tenants of one kind may do.
type Plan struct {
	// Limits are the limits by the names of their policies. Under a policy that is not here, the
	// tenant has the policy's own Algorithm.
	Limits map[string]core.Algorithm
	// Caps are the limits of semaphores, by name: each is between 1 and core.MaxLimit.
	Caps map[string]int64
	// Shadow names a plan that is tried beside this one; see Plans.Shadow. Empty is none.
	Shadow string
}

// SetConfig configures a Set.
type SetConfig struct {
	// Default names the plan of tenants that have no other. It is required.
	Default string
	// Plans are the plans by name, which has 1 to 64 of the characters A-Z a-z 0-9 _ . and -. At
	// least one is required.
	Plans map[string]Plan
}

// Set is a validated set of plans. NewSet, ParseSet or ReadSet makes one. It is immutable and safe
// for concurrent use.
type Set struct {
	standard *plan // of tenants that have no other
	plans    map[string]*plan
}

// plan is a Plan of a Set.
type plan struct {
	Plan
	name   string
	shadow *plan
}

// NewSet returns a Set, or every fault of the configuration at once. A fault names its field as the
// files of ParseSet do, such as plans.free.limits.api.rate.
func NewSet(cfg SetConfig) (*Set, error) {
	set, faults := compile(cfg)
	return set, joined("", faults, nil)
}

// Names returns the names of the plans in alphabetic order.
func (s *Set) Names() []string { return slices.Sorted(maps.Keys(s.plans)) }

// Default returns the name of the plan of tenants that have no other.
func (s *Set) Default() string { return s.standard.name }

// Plan returns a copy of the plan of a name, and whether there is one.
func (s *Set) Plan(name string) (Plan, bool) {
	p, ok := s.plans[name]
	if !ok {
		return Plan{}, false
	}
	return Plan{cloned(p.Limits), maps.Clone(p.Caps), p.Plan.Shadow}, true
}

// cloned returns a copy of limits that shares nothing with them.
func cloned(limits map[string]core.Algorithm) map[string]core.Algorithm {
	limits = maps.Clone(limits)
	for name, limit := range limits {
		if log, ok := limit.(core.SlidingLog); ok {
			limits[name] = core.SlidingLog{Windows: slices.Clone(log.Windows)}
		}
	}
	return limits
}

// fault is one fault of a configuration.
type fault struct{ path, text string }

// joined returns an error for each fault, in the order of their lines, or nil. The faults of a file
// follow its name.
func joined(file string, faults []fault, lines map[string]int) error {
	line := func(f fault) int {
		for path := f.path; path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
			if n := lines[path]; n > 0 {
				return n
			}
		}
		return 0
	}
	faults = slices.Clone(faults)
	slices.SortStableFunc(faults, func(a, b fault) int { return cmp.Compare(line(a), line(b)) })
	errs := make([]error, len(faults))
	for i, f := range faults {
		at := ""
		if n := line(f); n > 0 {
			at = fmt.Sprintf("line %d: ", n)
		}
		errs[i] = errors.New("plans: " + file + at + strings.TrimSpace(f.path+" "+f.text))
	}
	return errors.Join(errs...)
}

// compile returns a set, or faults.
func compile(cfg SetConfig) (*Set, []fault) {
	var faults []fault
	set := &Set{plans: make(map[string]*plan, len(cfg.Plans))}
	if len(cfg.Plans) == 0 {
		faults = append(faults, fault{"plans", "is empty: at least one plan is required"})
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Plans)) {
		p := cfg.Plans[name]
		name := strings.Clone(name) // so that it does not keep the whole file in memory
		faults = append(faults, checkName("plans", name)...)
		faults = append(faults, checkLimits("plans."+name+".", p.Limits, p.Caps)...)
		set.plans[name] = &plan{
			Plan: Plan{cloned(p.Limits), maps.Clone(p.Caps), p.Shadow}, name: name,
		}
	}
	for _, name := range set.Names() {
		p := set.plans[name]
		if p.Plan.Shadow == "" {
			continue
		}
		path := "plans." + name + ".shadow"
		if p.shadow = set.plans[p.Plan.Shadow]; p.shadow == nil {
			faults = append(faults, fault{path, fmt.Sprintf("is %q: there is no such plan", p.Plan.Shadow)})
		} else if p.shadow == p {
			faults = append(faults, fault{path, "is the plan itself"})
		}
	}
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

// checkLimits returns the faults of limits and caps. The path ends in a dot.
func checkLimits(
	path string, limits map[string]core.Algorithm, caps map[string]int64,
) (faults []fault) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		faults = append(faults, checkName(path+"limits", name)...)
		faults = append(faults, checkLimit(path+"limits."+name, limits[name])...)
	}
	for _, name := range slices.Sorted(maps.Keys(caps)) {
		faults = append(faults, checkName(path+"caps", name)...)
		if n := caps[name]; n < 1 || n > core.MaxLimit {
			faults = append(faults, fault{path + "caps." + name,
				fmt.Sprintf("is %d: it must be between 1 and %d", n, int64(core.MaxLimit))})
		}
	}
	return faults
}

// checkName returns the fault of a name, if it has one. Core knows what names are.
func checkName(path, name string) []fault {
	_, err := core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.Unlimited{}})
	if err == nil {
		return nil
	}
	text := strings.TrimPrefix(err.Error(), "core: PolicyConfig.Name ")
	if name == "" {
		return []fault{{path, "holds an empty name"}}
	}
	return []fault{{path, fmt.Sprintf("holds the name %.80q, which %s", name, text)}}
}

// fields are core's fields in the words of a file.
var fields = map[string]string{
	"TokenBucket.Rate": "rate", "TokenBucket.Per": "per", "TokenBucket.Burst": "burst",
	"LeakyBucket.Rate": "leak", "LeakyBucket.Per": "per", "LeakyBucket.Capacity": "capacity",
	"FixedWindow.Limit": "limit", "FixedWindow.Window": "fixed_window",
	"SlidingWindow.Limit": "limit", "SlidingWindow.Window": "sliding_window",
	"SlidingWindow.Buckets": "buckets", "SlidingLog.Windows": "sliding_log",
	"Calendar.Limit": "limit", "Calendar.Every": "calendar", "Calendar.In": "in",
	"Calendar.Anchor": "anchor",
}

var (
	// field is a field of an algorithm at the start of core's error.
	field = regexp.MustCompile(`^(\w+\.\w+)(\S*) `)
	words = strings.NewReplacer(
		"Windows[", "sliding_log[", "].Width", "].window", "].Limit", "].limit",
		"(DenyAll is", "(deny is",
		"PeriodMinute, PeriodHour, PeriodDay, PeriodWeek, PeriodMonth or PeriodYear",
		"minute, hour, day, week, month or year", ", such as time.UTC", ", such as UTC",
		"is nil:", "is missing:", "but Per is", "but per is", "at all is DenyAll", "at all is deny",
	)
)

// checkLimit returns the faults of a limit. Core knows what limits are.
func checkLimit(path string, limit core.Algorithm) (faults []fault) {
	if limit == nil {
		return []fault{{path, "is nil: it must be a limit, such as core.PerMinute(100)"}}
	}
	_, err := core.NewPolicy(core.PolicyConfig{Name: "limit", Algorithm: limit})
	for _, err := range unjoined(err) {
		text := strings.TrimPrefix(err.Error(), "core: PolicyConfig.Algorithm: ")
		of := field.FindStringSubmatch(text)
		if of == nil || fields[of[1]] == "" {
			faults = append(faults, fault{path, "is not valid: " + text})
			continue
		}
		faults = append(faults, fault{
			path + "." + fields[of[1]] + words.Replace(of[2]), words.Replace(text[len(of[0]):]),
		})
	}
	return faults
}

// unjoined returns the errors of an error of errors.Join, or the error alone.
func unjoined(err error) (all []error) {
	if err == nil {
		return nil
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			all = append(all, unjoined(e)...)
		}
		return all
	}
	return []error{err}
}
