package lease

import (
	"cmp"
	"slices"
)

// ends are ids in the order in which they end.
type ends struct {
	times map[string]int64
	order []end
}

type end struct {
	id string
	at int64
}

func newEnds() ends { return ends{times: make(map[string]int64)} }

func (e *ends) len() int { return len(e.order) }

func (e *ends) at(id string) (int64, bool) {
	at, ok := e.times[id]
	return at, ok
}

func (e *ends) first() (int64, bool) {
	if len(e.order) == 0 {
		return 0, false
	}
	return e.order[0].at, true
}

func (e *ends) find(x end) int {
	i, _ := slices.BinarySearchFunc(e.order, x, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	return i
}

func (e *ends) put(id string, at int64) {
	e.remove(id)
	e.order = slices.Insert(e.order, e.find(end{id, at}), end{id, at})
	e.times[id] = at
}

func (e *ends) remove(id string) bool {
	at, ok := e.times[id]
	if !ok {
		return false
	}
	i := e.find(end{id, at})
	e.order = slices.Delete(e.order, i, i+1)
	delete(e.times, id)
	return true
}

// until are the first ids that have ended at now, at most n.
func (e *ends) until(now int64, n int) (ids []string) {
	for _, x := range e.order[:min(n, len(e.order))] {
		if x.at > now {
			break
		}
		ids = append(ids, x.id)
	}
	return ids
}
