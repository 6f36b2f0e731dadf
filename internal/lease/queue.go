package lease

import (
	"cmp"
	"slices"
)

type place struct{ ticket, id string }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.ticket, q.ticket), cmp.Compare(p.id, q.id))
}

// head is the first that waits at a node or below it.
func (s *Scope) head(node string) (ticket, id string) {
	var here, below place
	if w := s.waiters[node]; len(w) > 0 {
		here = w[0]
	}
	if r := s.ready[node]; len(r) > 0 {
		below = r[0]
	}
	if below.id != "" && (here.id == "" || below.ticket < here.ticket) {
		return s.head(below.id)
	}
	return here.ticket, here.id
}

func enter(queues map[string][]place, node string, p place) {
	q := queues[node]
	i, _ := slices.BinarySearchFunc(q, p, place.compare)
	queues[node] = slices.Insert(q, i, p)
}

func depart(queues map[string][]place, node string, p place) {
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

// refresh brings the nodes of the levels up to date in their parents' queues.
func (s *Scope) refresh(levels []Level) {
	for i := len(levels) - 1; i > 0; i-- {
		node, parent := levels[i].Node, levels[i-1].Node
		ticket, id := s.head(node)
		if id != "" && !s.room(s.records[id], node) {
			ticket = ""
		}
		before := s.entered[node]
		if before != "" && before != ticket {
			depart(s.ready, parent, place{before, node})
			delete(s.entered, node)
		}
		if ticket != "" && before != ticket {
			enter(s.ready, parent, place{ticket, node})
			s.entered[node] = ticket
		}
	}
}
