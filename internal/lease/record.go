package lease

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// record is what is known of a holder or a waiter.
type record struct {
	ticket         string
	token, granted int64
	Request
}

// String returns the record as Redis stores it.
func (r *record) String() string {
	return fmt.Sprint(r.ticket, " ", r.token, " ", r.granted, " ", r.Request.String())
}

// Record is a parsed [Entry.Record]. A waiter has no Token and no Granted time.
type Record struct {
	Token, Granted int64
	// Queued is when a waiter was queued, in microseconds: its ticket, which is later by the number
	// of waiters that the scope queued in the same microsecond or before a clock went back. It is 0
	// for a holder that did not wait.
	Queued   int64
	Metadata string
	Levels   []Level
}

// Values returns the metadata. It is nil if there is none that can be read.
func (r *Record) Values() map[string]string {
	if r.Metadata == "-" {
		return map[string]string{}
	}
	parsed, err := url.ParseQuery(r.Metadata)
	if err != nil {
		return nil
	}
	values := make(map[string]string, len(parsed))
	for k := range parsed {
		values[k] = parsed.Get(k)
	}
	return values
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
	if words[0] != "-" {
		r.Queued = number(words[0])
		if r.Queued >= later {
			r.Queued -= later
		}
	}
	for i := 7; i < len(words); i += 3 {
		l := Level{Node: words[i], Weight: number(words[i+1]), Limit: number(words[i+2])}
		r.Levels = append(r.Levels, l)
	}
	return r, err
}
