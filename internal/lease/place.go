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

// later is added to the ticket of a waiter in the background, so that it comes behind all others.
const later = 5_000_000_000_000_000

func inBackground(ticket string) bool { return ticket >= digits(later) }

// position is where a node is ready: its parent, and its rank among its siblings.
type position struct{ parent, rank string }

// ticketOf returns the ticket in a rank.
func ticketOf(rank string) string { return rank[17:] }
