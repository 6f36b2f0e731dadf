package trips

import "slices"

const (
	maxBatchCalls  = 128 // the server does nothing else while it runs a batch
	maxBatchWeight = 640 // the sum of weights, which grows with the work of the server

	// MaxOperationWeight is the most that an operation may weigh, however much work it is. A batch
	// spares as much for operations.
	MaxOperationWeight = maxBatchWeight / 4
)

// line is the calls that wait for a round trip.
type line struct {
	waiting []*Call
	strays  map[string]struct{} // ids of slots that sent calls ask for, whose callers have left
}

// take moves the next batch, of at most room calls, to a trip: decisions first, then operations,
// each in the order of their arrival. If both wait, a quarter of the batch is for operations, so
// that neither waits for all of the other. A release does not overtake the acquire of its slot.
func (l *line) take(t *trip, room int) {
	weight := 0
	pick := func(lane Lane, room, spare int) {
		for _, k := range l.waiting {
			if room > 0 && k.Lane == lane && !l.stray(k.Releases) &&
				(weight+k.Weight <= maxBatchWeight-spare || len(t.calls) == 0) {
				k.state = stateHeld
				t.calls = append(t.calls, k)
				room, weight = room-1, weight+k.Weight
			}
		}
	}
	if l.has(Operations) {
		pick(Decisions, max(1, room-room/4), MaxOperationWeight)
		pick(Operations, max(1, room-len(t.calls)), 0)
	} else {
		pick(Decisions, room, 0)
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(k *Call) bool { return k.state != stateWaits })
}

// has reports whether a call of that lane waits.
func (l *line) has(lane Lane) bool {
	return slices.ContainsFunc(l.waiting, func(k *Call) bool { return k.Lane == lane })
}

// stray reports whether the acquire of one of these ids is still on its way.
func (l *line) stray(ids []string) bool {
	if len(l.strays) == 0 {
		return false
	}
	return slices.ContainsFunc(ids, func(id string) bool {
		_, ok := l.strays[id]
		return ok
	})
}

// leave lets the caller of a call go that is not answered.
func (l *line) leave(k *Call, why error) {
	if k.state == stateSent && k.Acquires != "" {
		l.strays[k.Acquires] = struct{}{}
	}
	k.leave(why)
}

// remove takes a call out of the line, if it waits there.
func (l *line) remove(k *Call) {
	if i := slices.Index(l.waiting, k); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
}
