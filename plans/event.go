package plans

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headgate/headgate/core"
)

// EventKind says what an Event reports.
type EventKind uint8

// The kinds of an Event.
const (
	EventReloaded        EventKind = iota + 1 // another Set holds
	EventReloadFailed                         // the file is bad, and the Set before still holds
	EventResolveFailed                        // Resolve failed, or named an unknown plan
	EventFeedFailed                           // Redis does not tell of changes; told once per outage
	EventFeedRestored                         // Redis tells of changes again
	EventOverrideFailed                       // an override cannot be read, or names an unknown plan
	EventOverrideApplied                      // this process obeys an override that it did not know
	EventOverrideEnded                        // this process obeys an override no longer
	EventDisagreement                         // a plan and its shadow decide differently
)

var eventKinds = []string{
	"none", "reloaded", "reload failed", "resolve failed", "feed failed", "feed restored",
	"override failed", "override applied", "override ended", "disagreement",
}

// String returns the kind in lower-case words.
func (k EventKind) String() string { return nameOf(eventKinds, int(k)) }

// Event is what happened in Plans.
type Event struct {
	Kind EventKind
	// Tenant is whom a resolve, an override or a disagreement is about.
	Tenant string
	// Plan and Shadow are the names of the plans that disagree.
	Plan, Shadow string
	// Policy is the policy under which they do, and Allowed is what Plan decided: if it is true,
	// the policy allows the charge and the shadow would not.
	Policy  *core.Policy
	Allowed bool
	// Override is what an EventOverrideApplied is about. It must not be changed.
	Override *Override
	// Err is what went wrong.
	Err error
}

// nameOf returns the name of a value of an enumeration.
func nameOf(names []string, value int) string {
	if value < len(names) {
		return names[value]
	}
	return "unknown"
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
