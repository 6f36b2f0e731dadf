package lease

import (
	"slices"
	"strings"
)

// Entry is a holder or a waiter in a list.
type Entry struct {
	ID     string
	Left   int64 // time until the lease ends, in microseconds; -1 for a waiter
	Record string
}

// List returns the scope's time, then the holders in the order in which their leases end, then the
// waiters by node and in FIFO order.
func (s *Scope) List(now int64) (at int64, entries []Entry) {
	s.begin(now)
	at = s.now
	defer s.finish()
	for _, e := range s.holders.order {
		entries = append(entries, Entry{e.id, max(0, e.at-s.now), s.records[e.id].String()})
	}
	var lines []string
	for node, queue := range s.waiters {
		for _, p := range queue {
			lines = append(lines, node+" "+p.rank+" "+p.id)
		}
	}
	slices.Sort(lines)
	for _, l := range lines {
		id := l[strings.LastIndexByte(l, ' ')+1:]
		entries = append(entries, Entry{id, -1, s.records[id].String()})
	}
	return at, entries
}
