package algorithm

import (
	"maps"
	"slices"
)

// idsEnd is the time, in microseconds, of which ids are known until a multiple: so they end
// together, and few decisions drop some.
const idsEnd = 86_400_000_000

// Adjustment is what Adjust and AtLeast change. Times are in microseconds.
type Adjustment struct {
	// From and Until bound the period for which it is meant. They are 0 for any.
	From, Until int64
	ID          string // of Adjust
	Keep        int64  // how long the id is known
	// Units are charged by Adjust, or given back if they are negative. AtLeast raises what is used
	// to them.
	Units int64
	// Raise is the units by which Adjust raises the limit, or takes from an earlier raise with that end
	// if they are negative.
	Raise int64
	Ends  int64 // when the raise ends
	Seeds Seeding
}

// Seeding says whether AtLeast makes the key a seeded one.
type Seeding uint8

// The kinds of Seeding.
const (
	SeedsNot   Seeding = iota
	SeedsAgain         // also a key that is seeded
	SeedsFirst         // AtLeast does nothing to a key that is seeded
)

// Adjustments are what is kept beside the state of a quota. The zero value is none.
type Adjustments struct {
	Seeded int64            // until then the key is seeded
	Raises map[int64]int64  // units by their end
	IDs    map[string]int64 // until when they are known
}

// Empty reports whether there are none.
func (a *Adjustments) Empty() bool {
	return a == nil || a.Seeded == 0 && len(a.Raises)+len(a.IDs) == 0
}

// Expires returns when none counts any more.
func (a *Adjustments) Expires() int64 {
	if a.Empty() {
		return 0
	}
	last := a.Seeded
	for ends := range a.Raises {
		last = max(last, ends)
	}
	for _, ends := range a.IDs {
		last = max(last, ends)
	}
	return last
}

// at returns by how much the limit is raised at a time that is not in the past.
func (a *Adjustments) at(time int64) (raised int64) {
	for ends, units := range a.Raises {
		if ends > time {
			raised += units
		}
	}
	return raised
}

// tell appends the number of raises that have not ended, and for each how long it lasts and its
// units, the first to end first.
func (a *Adjustments) tell(now int64, reply []int64) []int64 {
	head := len(reply)
	reply = append(reply, 0)
	for _, ends := range slices.Sorted(maps.Keys(a.Raises)) {
		if ends > now {
			reply[head]++
			reply = append(reply, ends-now, a.Raises[ends])
		}
	}
	return reply
}

// add notes an adjustment: its id, and by how much it raises the limit, which it returns. It drops what
// has ended.
func (a *Adjustments) add(now int64, k *Adjustment) (raised int64) {
	if a.IDs == nil {
		a.IDs, a.Raises = make(map[string]int64), make(map[int64]int64)
	}
	maps.DeleteFunc(a.Raises, func(ends, _ int64) bool { return ends <= now })
	maps.DeleteFunc(a.IDs, func(_ string, ends int64) bool { return ends <= now })
	known := now + k.Keep
	switch raised = max(k.Raise, -a.Raises[k.Ends]); {
	case raised > 0:
		known = max(known, k.Ends)
		a.Raises[k.Ends] += raised
	case raised < 0:
		if a.Raises[k.Ends] += raised; a.Raises[k.Ends] == 0 {
			delete(a.Raises, k.Ends)
		}
	}
	a.IDs[k.ID] = known - known%idsEnd + idsEnd
	return raised
}
