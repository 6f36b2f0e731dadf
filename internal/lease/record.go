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

// Entry is a holder, or a waiter whose Left is -1.
type Entry struct {
	ID     string
	Left   int64 // until its lease ends
	Record string
}

// List says who holds, by the end of their leases, and who waits, by their nodes and in order.
func (s *Scope) List(now int64) (at int64, all []Entry) {
	s.begin(now)
	at = s.now
	defer s.finish()
	for _, e := range s.holders.order {
		all = append(all, Entry{e.id, max(0, e.at-s.now), s.records[e.id].String()})
	}
	var lines []string
	for node, queue := range s.waiters {
		for _, p := range queue {
			lines = append(lines, node+" "+p.ticket+" "+p.id)
		}
	}
	slices.Sort(lines)
	for _, l := range lines {
		id := l[strings.LastIndexByte(l, ' ')+1:]
		all = append(all, Entry{id, -1, s.records[id].String()})
	}
	return at, all
}

// Record is what is known of a holder or a waiter.
type Record struct {
	Token, Granted int64
	Metadata       string
	Levels         []Level
}

// Parse reads a record of an Entry.
func Parse(text string) (Record, error) {
	words := strings.Fields(text)
	if len(words) < 10 || len(words)%3 != 1 {
		return Record{}, fmt.Errorf("lease: %q is no record", text)
	}
	r := Record{Metadata: words[6]}
	var err error
	number := func(word string) (n int64) {
		var e error
		n, e = strconv.ParseInt(word, 10, 64)
		err = cmp.Or(err, e)
		return n
	}
	r.Token, r.Granted = number(words[1]), number(words[2])
	for i := 7; i < len(words); i += 3 {
		r.Levels = append(r.Levels, Level{Node: words[i], Weight: number(words[i+1]), Limit: number(words[i+2])})
	}
	return r, err
}

// String is the record as Redis holds it.
func (r *record) String() string {
	var b strings.Builder
	fmt.Fprint(&b, r.ticket, " ", r.token, " ", r.granted, " ", r.Longest, " ", r.Lease, " ", r.Channel, " ", r.Metadata)
	for _, l := range r.Levels {
		fmt.Fprint(&b, " ", l.Node, " ", l.Weight, " ", l.Limit)
	}
	return b.String()
}
