// Package lease grants, renews and releases the leases of a semaphore once more in plain Go. The memory gate runs on it, and
// lua/lease.lua is tested against it: for equal operations at equal times both give equal replies and keep equal states.
package lease

import (
	"fmt"
	"maps"
	"slices"
)

// Claim is the longest lease of who was granted one while waiting, until it renews it.
const Claim = 5_000_000

const (
	reaped   = 32 // at most, in a step
	promoted = 64
)

// Scope is the state of all nodes that share an outermost key. The zero value is idle. It is not safe for concurrent use.
type Scope struct {
	holders  ends
	patience ends
	records  map[string]*record
	waiters  map[string][]place // by node, in order
	ready    map[string][]place // by node: those below it
	entered  map[string]string  // by node: the ticket by which it is ready
	used     map[string]int64
	token    int64
	ticket   int64
	hold     int64
	last     int64
	ahead    int64

	now  int64
	Tell func(channel, message string) // may be nil
}

func (s *Scope) room(r *record, node string) bool {
	for _, l := range r.Levels {
		if l.Node == node {
			return s.used[node]+l.Weight <= l.Limit
		}
	}
	return true
}

func (s *Scope) roomAtAll(r *record) bool {
	for _, l := range r.Levels {
		if !s.room(r, l.Node) {
			return false
		}
	}
	return true
}

func (s *Scope) use(r *record, sign int64) {
	for _, l := range r.Levels {
		if s.used[l.Node] += sign * l.Weight; s.used[l.Node] == 0 {
			delete(s.used, l.Node)
		}
	}
}

func (s *Scope) grant(id string, r *record, lease int64) {
	r.token, r.granted = max(s.token+1, s.now), s.now
	s.token = r.token
	s.holders.put(id, s.now+lease)
	s.use(r, 1)
}

func (s *Scope) leave(id string, r *record) {
	depart(s.waiters, r.Levels[len(r.Levels)-1].Node, place{r.ticket, id})
	s.patience.remove(id)
}

// promote grants what there is room for, first come first served. All levels are looked at, in case a node is not below the
// same ones in every request.
func (s *Scope) promote(node, own string) {
	for i := range promoted + 1 {
		_, id := s.head(node)
		r := s.records[id]
		if r == nil || !s.roomAtAll(r) {
			return
		}
		if i == promoted {
			s.tell(r.Channel, Message{ID: id}.String())
			return
		}
		s.leave(id, r)
		lease := min(r.Lease, Claim)
		if id == own {
			lease = r.Lease
		}
		s.grant(id, r, lease)
		s.refresh(r.Levels)
		if id != own {
			s.tell(r.Channel, Message{id, r.token, lease, s.used[r.Levels[len(r.Levels)-1].Node]}.String())
		}
	}
}

func (s *Scope) tell(channel, message string) {
	if s.Tell != nil {
		s.Tell(channel, message)
	}
}

// drop forgets a holder or a waiter, and says which it was: 1 or 2, 0 if neither.
func (s *Scope) drop(id string) (was int64, r *record) {
	if r = s.records[id]; r == nil {
		return 0, nil
	}
	if s.holders.remove(id) {
		was = 1
		s.use(r, -1)
	} else {
		was = 2
		s.leave(id, r)
	}
	delete(s.records, id)
	s.refresh(r.Levels)
	return was, r
}

// begin brings the scope to a time and lets go who is overdue.
func (s *Scope) begin(now int64) {
	if s.records == nil {
		*s = Scope{
			holders: newEnds(), patience: newEnds(), records: make(map[string]*record), waiters: make(map[string][]place),
			ready: make(map[string][]place), entered: make(map[string]string), used: make(map[string]int64), Tell: s.Tell,
		}
	}
	if now+s.ahead < s.last {
		s.ahead = s.last - now
	}
	s.now = now + s.ahead
	roots := make(map[string]bool)
	for _, e := range []*ends{&s.holders, &s.patience} {
		for _, id := range e.until(s.now, reaped) {
			if _, r := s.drop(id); r != nil {
				roots[r.Levels[0].Node] = true
			} else {
				e.remove(id)
			}
		}
	}
	s.promoteAll(roots)
}

func (s *Scope) promoteAll(roots map[string]bool) {
	for _, node := range slices.Sorted(maps.Keys(roots)) {
		s.promote(node, "")
	}
}

// finish forgets an idle scope.
func (s *Scope) finish() {
	s.last = s.now
	if s.Idle() {
		*s = Scope{Tell: s.Tell}
	}
}

// Idle says whether nobody holds, waits, or is known to have been forced out.
func (s *Scope) Idle() bool { return s.holders.len()+s.patience.len() == 0 }

// Acquire asks for a lease, or asks again: for who holds it already it is extended, and who waits goes on waiting.
func (s *Scope) Acquire(now int64, q Request) Grant {
	s.begin(now)
	defer s.finish()
	id, root, leaf := q.ID, q.Levels[0].Node, q.Levels[len(q.Levels)-1].Node
	status := Waiting
	r := s.records[id]
	_, held := s.holders.at(id)
	switch {
	case held:
		status = Held
	case r != nil:
		r.Request = q
		s.patience.put(id, s.now+q.Patience)
		s.refresh(r.Levels)
		s.promote(root, id)
	case s.evicted(id):
		status = Evicted
	default:
		r = &record{ticket: "-", Request: q}
		fits, first := true, true
		for _, l := range q.Levels {
			_, before := s.head(l.Node)
			fits, first = fits && s.room(r, l.Node), first && before == ""
		}
		switch {
		case fits && first:
			s.records[id] = r
			s.grant(id, r, q.Lease)
			status = Held
		case q.Waiters == 0 && !fits:
			status = Full
		case q.Waiters > 0 && int64(len(s.waiters[leaf])) >= q.Waiters:
			status = QueueFull
		default:
			// First the newcomer waits, then the first are granted, and then we see whether it was among them.
			s.ticket = max(s.ticket+1, s.now)
			r.ticket = fmt.Sprintf("%d%016d", q.Priority, s.ticket)
			s.records[id] = r
			enter(s.waiters, leaf, place{r.ticket, id})
			s.patience.put(id, s.now+q.Patience)
			s.refresh(r.Levels)
			if fits || len(r.Levels) > 1 { // else nobody is let in by who came
				s.promote(root, id)
			}
			if _, held := s.holders.at(id); q.Waiters == 0 && !held {
				s.drop(id)
				status = Full
			}
		}
	}
	g := Grant{Token: s.token, Next: -1, Hold: s.hold}
	if at, held := s.holders.at(id); held {
		status = Held
		until := s.now + r.Lease
		if r.Longest > 0 {
			until = min(until, r.granted+r.Longest)
		}
		if until > at {
			s.holders.put(id, until)
		}
		g.Token, g.Left = r.token, max(until, at, s.now)-s.now
	}
	if g.Status = status; status == Waiting {
		i, _ := slices.BinarySearchFunc(s.waiters[leaf], place{r.ticket, id}, place.compare)
		g.Position = int64(i)
	}
	if at, ok := s.holders.first(); ok && status != Held && g.Position == 0 {
		g.Next = max(0, at-s.now)
	}
	for _, l := range q.Levels {
		g.Used = append(g.Used, s.used[l.Node])
	}
	return g
}

// Renew extends leases, and says how long each lives now: 0 if it is unknown, -1 if it was forced out.
func (s *Scope) Renew(now, lease int64, ids []string) []int64 {
	s.begin(now)
	defer s.finish()
	left := make([]int64, len(ids))
	for i, id := range ids {
		until, held := s.holders.at(id)
		if !held {
			if s.evicted(id) {
				left[i] = -1
			}
			continue
		}
		wanted, r := s.now+lease, s.records[id]
		if r.Longest > 0 {
			wanted = min(wanted, r.granted+r.Longest)
		}
		if wanted > until {
			s.holders.put(id, wanted)
			until = wanted
		}
		left[i] = max(1, until-s.now)
	}
	return left
}
