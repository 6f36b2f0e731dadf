package lease

import (
	"cmp"
	"slices"
)

// place is a waiter's place in the FIFO queue of a node, or a ready node's among its siblings.
// Places are in the order of their ranks: the ticket of a waiter, the rank of a node.
type place struct{ rank, id string }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.rank, q.rank), cmp.Compare(p.id, q.id))
}

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
		return s.headBelow(below.id, depth+1)
	}
	return here.id
}

func enqueue(queues map[string][]place, node string, p place) {
	q := queues[node]
	if i, found := slices.BinarySearchFunc(q, p, place.compare); !found {
		queues[node] = slices.Insert(q, i, p)
	}
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
