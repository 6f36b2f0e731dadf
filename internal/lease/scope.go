// Package lease grants, renews and releases the leases of a semaphore in plain Go. It is the memory
// store's implementation, and the model that lua/lease/lease.lua is tested against: for equal
// operations at equal times both give equal replies and keep equal states. The contract at the head
// of lua/lease/lease.lua defines the queues and the messages.
package lease

import (
	"fmt"
	"maps"
	"slices"
)

// Claim bounds the first lease of a granted waiter, in microseconds. The waiter renews it to its
// full length; a waiter that has died frees its slot after that time.
const Claim = 5_000_000

// Bounds on the work of one operation.
const (
	maxExpired  = 32 // of the holders, and of the waiters
	maxPromoted = 64 // at one root
)

// Scope is the state of all nodes that share an outermost key. The zero value is idle. It is not
// safe for concurrent use.
type Scope struct {
	holders  deadlines // of leases
	patience deadlines // of waiters' places; "!id": of eviction marks
	records  map[string]*record
	waiters  map[string][]place  // by node, in FIFO order
	ready    map[string][]place  // by node: its ready children
	readyAt  map[string]position // by ready node
	used     map[string]int64    // by node: weight in use
	accounts
	token  int64 // the last one granted
	ticket int64 // the last one given while somebody waits
	hold   int64 // mean, in microseconds
	last   int64 // time of the last operation
	ahead  int64 // how far the scope's clock runs ahead of the caller's

	now int64

	// Tell, if not nil, is called with every message to publish.
	Tell func(channel, message string)
}

func (s *Scope) hasRoomAt(r *record, node string) bool {
	for _, l := range r.Levels {
		if l.Node == node {
			return s.used[node]+l.Weight <= l.Limit
		}
	}
	return true
}

func (s *Scope) hasRoom(r *record) bool {
	for _, l := range r.Levels {
		if !s.hasRoomAt(r, l.Node) {
			return false
		}
	}
	return true
}

func (s *Scope) addWeight(r *record, sign int64) {
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
	s.addWeight(r, 1)
}

func (s *Scope) leaveQueue(id string, r *record) {
	dequeue(s.waiters, r.Levels[len(r.Levels)-1].Node, place{r.ticket, id})
	s.patience.remove(id)
}

// promote grants leases to the first waiters while there is room, at most maxPromoted, and then
// tells the next waiter to acquire again. It checks every level, because requests may place a node
// below different parents. own is the id that acquires: its reply tells it of the grant.
func (s *Scope) promote(node, own string) {
	for i := range maxPromoted + 1 {
		id := s.head(node)
		r := s.records[id]
		if r == nil || !s.hasRoom(r) {
			return
		}
		if i == maxPromoted {
			s.publish(r.Channel, Message{ID: id}.String())
			return
		}
		s.leaveQueue(id, r)
		s.advance(r)
		lease := min(r.Lease, Claim)
		if id == own {
			lease = r.Lease
		}
		s.grant(id, r, lease)
		s.refresh(r.Levels)
		if id != own {
			used := s.used[r.Levels[len(r.Levels)-1].Node]
			s.publish(r.Channel, Message{id, r.token, lease, used}.String())
		}
	}
}

func (s *Scope) publish(channel, message string) {
	if s.Tell != nil {
		s.Tell(channel, message)
	}
}

// drop deletes a holder or a waiter. It returns 1 for a holder, 2 for a waiter or 0 for an unknown
// id, and the record.
func (s *Scope) drop(id string) (was int64, r *record) {
	if r = s.records[id]; r == nil {
		return 0, nil
	}
	waited := s.patience.len() > 0
	if s.holders.remove(id) {
		was = 1
		s.addWeight(r, -1)
		if waited {
			s.charge(r)
		}
	} else {
		was = 2
		s.leaveQueue(id, r)
	}
	delete(s.records, id)
	if waited {
		s.refresh(r.Levels)
	}
	return was, r
}

// begin moves the scope's clock to now, never back, and drops the leases and places that have
// expired.
func (s *Scope) begin(now int64) {
	if s.records == nil {
		*s = Scope{
			holders: newDeadlines(), patience: newDeadlines(),
			records: make(map[string]*record), waiters: make(map[string][]place),
			ready: make(map[string][]place), readyAt: make(map[string]position),
			used: make(map[string]int64), accounts: newAccounts(), Tell: s.Tell,
		}
	}
	if now+s.ahead < s.last {
		s.ahead = s.last - now
	}
	s.now = now + s.ahead
	roots := make(map[string]bool)
	for _, d := range []*deadlines{&s.holders, &s.patience} {
		for _, id := range d.expired(s.now, maxExpired) {
			if _, r := s.drop(id); r != nil {
				roots[r.Levels[0].Node] = true
			} else {
				d.remove(id)
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

// finish resets an idle scope, as the script deletes its keys.
func (s *Scope) finish() {
	s.last = s.now
	if s.patience.len() == 0 {
		s.ticket, s.accounts = 0, newAccounts()
	}
	if s.Idle() {
		*s = Scope{Tell: s.Tell}
	}
}

// Idle reports whether the scope has no holder, no waiter and no eviction mark.
func (s *Scope) Idle() bool { return s.holders.len()+s.patience.len() == 0 }

// Acquire requests a lease. A second request with the same id extends a held lease, or keeps a
// waiter's place in the queue.
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
			fits = fits && s.hasRoomAt(r, l.Node)
			first = first && s.head(l.Node) == ""
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
			// The caller queues first: granting then goes by the queues alone, whether or not it
			// may wait.
			s.ticket = max(s.ticket+1, s.now)
			r.ticket = fmt.Sprintf("%016d%d", s.ticket+Step*int64(q.Priority), q.Priority)
			s.records[id] = r
			enqueue(s.waiters, leaf, place{r.ticket, id})
			s.patience.put(id, s.now+q.Patience)
			isFirst := s.head(leaf) == id
			if isFirst {
				s.refresh(r.Levels)
			}
			// Otherwise the new waiter makes no other ready.
			if fits || isFirst && len(r.Levels) > 1 {
				s.promote(root, id)
			}
			if _, held := s.holders.at(id); q.Waiters == 0 && !held {
				s.drop(id)
				s.promote(root, "") // the ranks are new
				status = Full
			}
		}
	}
	g := Grant{Token: s.token, Next: -1, Hold: s.hold}
	if at, held := s.holders.at(id); held {
		status = Held
		g.Token, g.Left = r.token, s.extend(id, r, at, r.Lease)-s.now
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

// extend moves the end of a lease, never back, and returns it, at least now.
func (s *Scope) extend(id string, r *record, ends, lease int64) int64 {
	wanted := s.now + lease
	if r.Longest > 0 {
		wanted = min(wanted, r.granted+r.Longest)
	}
	if wanted > ends {
		s.holders.put(id, wanted)
	}
	return max(wanted, ends, s.now)
}

// Renew extends leases. The result is the time until each ends, in microseconds: at least 1 for a
// held lease, 0 for an unknown id, -1 for an evicted one.
func (s *Scope) Renew(now, lease int64, ids []string) []int64 {
	s.begin(now)
	defer s.finish()
	left := make([]int64, len(ids))
	for i, id := range ids {
		ends, held := s.holders.at(id)
		if !held {
			if s.evicted(id) {
				left[i] = -1
			}
			continue
		}
		left[i] = max(1, s.extend(id, s.records[id], ends, lease)-s.now)
	}
	return left
}
