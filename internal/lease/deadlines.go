package lease

import (
	"cmp"
	"slices"
)

// deadlines orders ids by the time at which they expire, and by name where the times are equal, as
// a sorted set in Redis does.
type deadlines struct {
	times map[string]int64
	order []deadline
}

type deadline struct {
	id string
	at int64
}

func newDeadlines() deadlines { return deadlines{times: make(map[string]int64)} }

func (d *deadlines) len() int { return len(d.order) }

func (d *deadlines) at(id string) (int64, bool) {
	at, ok := d.times[id]
	return at, ok
}

func (d *deadlines) first() (int64, bool) {
	if len(d.order) == 0 {
		return 0, false
	}
	return d.order[0].at, true
}

func (d *deadlines) find(x deadline) int {
	i, _ := slices.BinarySearchFunc(d.order, x, func(a, b deadline) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id))
	})
	return i
}

func (d *deadlines) put(id string, at int64) {
	d.remove(id)
	x := deadline{id, at}
	d.order = slices.Insert(d.order, d.find(x), x)
	d.times[id] = at
}

func (d *deadlines) remove(id string) bool {
	at, ok := d.times[id]
	if !ok {
		return false
	}
	i := d.find(deadline{id, at})
	d.order = slices.Delete(d.order, i, i+1)
	delete(d.times, id)
	return true
}

// expired returns the first ids that have expired at now, at most n.
func (d *deadlines) expired(now int64, n int) (ids []string) {
	for _, x := range d.order[:min(n, len(d.order))] {
		if x.at > now {
			break
		}
		ids = append(ids, x.id)
	}
	return ids
}
