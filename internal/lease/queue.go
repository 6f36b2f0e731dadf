package lease

import (
	"maps"
	"slices"
	"strconv"
)

// Bounds on the work of one operation.
const (
	maxExpired  = 32 // of the holders, and of the waiters
	maxPromoted = 64 // at one root
)

// head returns the first waiter at a node or at a ready node below it, or an empty text. Of the
// ready nodes, the one with the lowest rank is first. The node's own waiters and that node's take
// turns by their tickets.
func (s *Scope) head(node string) string { return s.headBelow(node, 0) }

// maxDepth ends the search for a head where requests have placed nodes below one another in a
// circle.
const maxDepth = 16

func (s *Scope) headBelow(node string, depth int) string {
	var here, below place
	if w := s.waiters[node]; len(w) > 0 {
		here = w[0]
	}
	if r := s.ready[node]; len(r) > 0 {
		below = r[0]
	}
	if below.id != "" && depth < maxDepth && (here.id == "" || ticketOf(below.rank) < here.rank) {
		if id := s.headBelow(below.id, depth+1); id != "" {
			return id
		}
		// The last that waited there had placed the node below another parent.
		dequeue(s.ready, node, below)
		delete(s.readyAt, below.id)
		return s.headBelow(node, depth)
	}
	return here.id
}

// refresh queues the inner nodes of the levels at their parents, or removes them. A node is ready
// while its head has room at it.
func (s *Scope) refresh(levels []Level) {
	for i := len(levels) - 1; i > 0; i-- {
		node, parent := levels[i].Node, levels[i-1]
		id := s.head(node)
		before, isReady := s.readyAt[node]
		var at position
		if r := s.records[id]; r != nil && s.hasRoomAt(r, node) {
			at = position{parent.Node, s.rankAt(node, r, parent)}
		}
		if isReady && before != at {
			dequeue(s.ready, before.parent, place{before.rank, node})
			delete(s.readyAt, node)
		}
		if at.rank != "" && before != at {
			enqueue(s.ready, at.parent, place{at.rank, node})
			s.readyAt[node] = at
		}
		if id == "" && s.used[node] == 0 {
			s.settleIdle("", node, parent.Node)
			s.settleIdle("!", node, parent.Node)
		}
	}
}

// settleIdle closes an account of a node that neither waits nor holds, or keeps it as a debt while that
// is ahead of the clock.
func (s *Scope) settleIdle(class, node, parent string) {
	account, known := s.account[class+node]
	if !known {
		return
	}
	bound := minDebts + s.holders.len() + s.patience.len()
	if account > s.clock[class+parent] && len(s.debts[class+parent]) < bound {
		enqueue(s.debts, class+parent, place{digits(account), node})
	} else {
		delete(s.account, class+node)
	}
}

// hasten moves a waiter in the background to its place among the others.
func (s *Scope) hasten(r *record) {
	if !inBackground(r.ticket) {
		return
	}
	leaf := r.Levels[len(r.Levels)-1].Node
	dequeue(s.waiters, leaf, place{r.ticket, r.ID})
	n, _ := strconv.ParseInt(r.ticket, 10, 64) // digits made it
	r.ticket = digits(n - later)
	enqueue(s.waiters, leaf, place{r.ticket, r.ID})
}

// before returns how many waiters at its innermost node a new caller would have before it.
func (s *Scope) before(r *record) int64 {
	waiters := s.waiters[r.Levels[len(r.Levels)-1].Node]
	if r.Background {
		return int64(len(waiters))
	}
	n, _ := slices.BinarySearchFunc(waiters, place{rank: digits(later)}, place.compare)
	return int64(n)
}

func (s *Scope) leaveQueue(id string, r *record) {
	dequeue(s.waiters, r.Levels[len(r.Levels)-1].Node, place{r.ticket, id})
	s.countWaiter(r, -1)
	s.patience.remove(id)
}

// countWaiter counts a waiter in or out at the nodes of its levels.
func (s *Scope) countWaiter(r *record, by int64) {
	for _, l := range r.Levels {
		n, waits := s.newest[l.Node]
		if !waits {
			n.limit = l.Limit
		}
		if n.waiters += by; n.waiters > 0 {
			s.newest[l.Node] = n
		} else {
			delete(s.newest, l.Node)
		}
	}
}

// adoptLimits lets the limits of a new caller hold for all that wait at its nodes, and grants what
// they have room for then. A waiter that acquires again is not new.
func (s *Scope) adoptLimits(levels []Level) {
	changed := false
	for _, l := range levels {
		if n, waits := s.newest[l.Node]; waits && n.limit != l.Limit {
			s.newest[l.Node] = newest{l.Limit, n.waiters}
			changed = true
		}
	}
	if changed {
		s.refresh(levels)
		s.promote(levels[0].Node, "")
	}
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

func (s *Scope) promoteAll(roots map[string]bool) {
	for _, node := range slices.Sorted(maps.Keys(roots)) {
		s.promote(node, "")
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
	if field := nameField(&r.Request); s.named[field] == id {
		delete(s.named, field)
	}
	if waited {
		s.refresh(r.Levels)
	}
	return was, r
}
