package lease

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type record struct {
	ticket         string
	token, granted int64
	Request
}

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

// Record is a parsed [Entry.Record]. A waiter has no Token and no Granted time.
type Record struct {
	Token, Granted int64
	Metadata       string
	Levels         []Level
}

// Parse parses the record of an Entry.
func Parse(text string) (Record, error) {
	words := strings.Fields(text)
	if len(words) < 10 || len(words)%3 != 1 {
		return Record{}, fmt.Errorf("lease: malformed record %q", text)
	}
	var r Record
	var err error
	r.Metadata, _, _ = strings.Cut(words[6], ";")
	number := func(word string) (n int64) {
		var e error
		n, e = strconv.ParseInt(word, 10, 64)
		err = cmp.Or(err, e)
		return n
	}
	r.Token, r.Granted = number(words[1]), number(words[2])
	for i := 7; i < len(words); i += 3 {
		l := Level{Node: words[i], Weight: number(words[i+1]), Limit: number(words[i+2])}
		r.Levels = append(r.Levels, l)
	}
	return r, err
}

// String returns the record as Redis stores it.
func (r *record) String() string {
	return fmt.Sprint(r.ticket, " ", r.token, " ", r.granted, " ", r.Request.String())
}
