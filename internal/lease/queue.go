package lease

import (
	"cmp"
	"slices"
)

// place is a waiter's or a ready node's place in the FIFO queue of a node.
type place struct{ ticket, id string }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.ticket, q.ticket), cmp.Compare(p.id, q.id))
}

// head returns the first waiter at a node or at a ready node below it, or empty texts.
func (s *Scope) head(node string) (ticket, id string) { return s.headBelow(node, 0) }

// maxDepth ends the search for a head where requests have placed nodes below one another in a circle.
const maxDepth = 16

func (s *Scope) headBelow(node string, depth int) (ticket, id string) {
	var here, below place
	if w := s.waiters[node]; len(w) > 0 {
		here = w[0]
	}
	if r := s.ready[node]; len(r) > 0 {
		below = r[0]
	}
	if below.id != "" && depth < maxDepth && (here.id == "" || below.ticket < here.ticket) {
		return s.headBelow(below.id, depth+1)
	}
	return here.ticket, here.id
}

func enqueue(queues map[string][]place, node string, p place) {
	q := queues[node]
	i, _ := slices.BinarySearchFunc(q, p, place.compare)
	queues[node] = slices.Insert(q, i, p)
}

func dequeue(queues map[string][]place, node string, p place) {
	q := queues[node]
	i, found := slices.BinarySearchFunc(q, p, place.compare)
	if !found {
		return
	}
	if q = slices.Delete(q, i, i+1); len(q) == 0 {
		delete(queues, node)
	} else {
		queues[node] = q
	}
}

// refresh queues the inner nodes of the levels at their parents, or removes them. A node is ready
// while its head has room at it.
func (s *Scope) refresh(levels []Level) {
	for i := len(levels) - 1; i > 0; i-- {
		node, parent := levels[i].Node, levels[i-1].Node
		ticket, id := s.head(node)
		if id != "" && !s.hasRoomAt(s.records[id], node) {
			ticket = ""
		}
		before := s.readyTicket[node]
		if before != "" && before != ticket {
			dequeue(s.ready, parent, place{before, node})
			delete(s.readyTicket, node)
		}
		if ticket != "" && before != ticket {
			enqueue(s.ready, parent, place{ticket, node})
			s.readyTicket[node] = ticket
		}
	}
}
