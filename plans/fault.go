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

// checkName returns the fault of a name, if it has one. Core knows what names are.
func checkName(path, name string) []fault {
	err := inside.CheckName(name, 64)
	switch {
	case err == nil:
		return nil
	case name == "":
		return []fault{{path, "holds an empty name"}}
	}
	return []fault{{path, fmt.Sprintf("holds the name %.80q, which %v", name, err)}}
}

// maxModel is the longest name of a model in bytes.
const maxModel = 256

// checkLimitName returns the fault of the name of a limit or a cap, behind which a model may stand.
func checkLimitName(path, name string) []fault {
	of, model, perModel := strings.Cut(name, "/")
	if perModel && (model == "" || len(model) > maxModel) {
		return []fault{{path, fmt.Sprintf("holds the name %.80q, whose model has %d bytes: it must have "+
			"between 1 and %d", name, len(model), maxModel)}}
	}
	return checkName(path, of)
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
	if err == nil {
		return nil
	}
	for text := range strings.Lines(err.Error()) { // errors.Join has written one on each
		text = strings.TrimPrefix(strings.TrimSuffix(text, "\n"), "core: PolicyConfig.Algorithm: ")
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

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func prefixed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s%w", prefix, err)
}
