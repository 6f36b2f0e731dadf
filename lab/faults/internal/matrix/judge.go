package matrix

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// longestDecision is the longest that a decision may take in a process that is short of CPU, by
// docs/failure.md. One that has CPU takes Config.Timeout at most. The longest time without CPU adds
// twice: until a timer fires, and until the caller runs.
const longestDecision = time.Second

// judge holds the outcome against its promise.
func (o *outcome) judge() {
	wrong := func(format string, args ...any) {
		o.faults = append(o.faults, fmt.Errorf(format, args...))
	}
	p := o.fault.promise
	for i, mode := range modes {
		if o.doubles[i] > 0 {
			wrong("%v: %d decisions counted twice", mode, o.doubles[i])
		}
		if o.missing[i] > 0 && p.forgets == 0 && !p.snapshot {
			wrong("%v: %d decisions of Redis did not count", mode, o.missing[i])
		}
		if most := p.over(i); o.over[i] > most {
			wrong("%v: %d admitted beyond the limit, at most %d are promised; shares decided because of %w",
				mode, o.over[i], most, o.causes[i])
		}
		if p.twice && o.over[i] < limit {
			wrong("%v: only %d were admitted beyond the limit, so there was one primary", mode, o.over[i])
		}
		if most := longestDecision + 2*o.stall; o.longest[i] > most {
			wrong("%v: a decision took %v, at most %v are promised", mode, o.longest[i], most)
		}
		if most := p.recovery + 2*o.stall; o.recovery[i] > most {
			wrong("%v: recovered after %v, at most %v are promised", mode, o.recovery[i], most)
		}
	}
	if o.slots > 0 && !p.loses {
		wrong("%d slots lost", o.slots)
	}
	if o.holds > 0 && !p.loses && !p.ends {
		wrong("%d holds lost", o.holds)
	}
	o.faults = slices.DeleteFunc(o.faults, func(err error) bool { return err == nil })
}

// Err returns what breaks a promise.
func (o *outcome) err() error {
	if len(o.faults) == 0 {
		return nil
	}
	return fmt.Errorf("%s, %v: %w", o.fault.name, o.topology, errors.Join(o.faults...))
}
