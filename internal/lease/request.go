package lease

import (
	"fmt"
	"strconv"
	"strings"
)

// MaxLimit is the largest limit of a level.
const MaxLimit = 1_000_000_000_000

// MaxShare is the largest share of a level.
const MaxShare = 1000

// Level is one of the caps that a lease counts against. Weight is at least 1 and at most Limit.
type Level struct {
	Node          string
	Limit, Weight int64
	// Share is the node's share of the room at its parent, relative to its siblings; 0 means 1.
	// While the weight in use at the node is below Floor, its waiters come before its siblings'.
	Share, Floor int64
}

// Faults returns everything that is wrong with the numbers of a level. A Weight of 0 is none yet. The
// outermost level divides the room of no other, so it has neither a Share nor a Floor.
func (l *Level) Faults(outermost bool) (faults []string) {
	share, floor := int64(MaxShare), l.Limit
	if outermost {
		share, floor = 0, 0
	}
	for _, n := range [...]struct {
		name               string
		value, least, most int64
	}{
		{"Limit", l.Limit, 1, MaxLimit}, {"Weight", l.Weight, 0, max(0, l.Limit)},
		{"Share", l.Share, 0, share}, {"Floor", l.Floor, 0, floor},
	} {
		if n.value < n.least || n.value > n.most {
			faults = append(faults, fmt.Sprintf("%s is %d: it must be between %d and %d",
				n.name, n.value, n.least, n.most))
		}
	}
	return faults
}

// Request asks for a lease. Times are in microseconds. No text is empty or holds a space. A second
// request with the same ID has the same nodes and weights.
type Request struct {
	// ID tells the caller from all others. If it is "name/rest", the caller ends what an earlier ID of
	// that name has at the innermost node, and gets its slot.
	ID, Channel string
	Lease       int64 // lifetime of the lease without a renewal
	Patience    int64 // lifetime of a waiter's place in the queue without another acquire
	Longest     int64 // longest hold over all renewals; 0 means no bound
	Waiters     int64 // most waiters at the innermost node; 0 means the caller does not wait
	Background  bool  // while it waits, it comes behind the waiters without
	Metadata    string
	Levels      []Level // outermost first
}

// SignedPatience returns the patience as the script reads it: a negative one waits in the background.
func (q *Request) SignedPatience() int64 {
	if q.Background {
		return -q.Patience
	}
	return q.Patience
}

// Name returns the part of an id that a later caller may have too, or an empty text.
func Name(id string) string {
	name, _, ok := strings.Cut(id, "/")
	if !ok {
		return ""
	}
	return name
}

// nameField returns which name the request has at its innermost node, or an empty text.
func nameField(q *Request) string {
	name := Name(q.ID)
	if name == "" {
		return ""
	}
	return q.Levels[len(q.Levels)-1].Node + "/" + name
}

// String returns the request as Redis stores it.
func (q *Request) String() string { return string(q.append(make([]byte, 0, 128))) }

// Lone returns what Redis stores behind the time of the grant for a lone holder.
func (q *Request) Lone() string {
	b := strconv.AppendInt(append(make([]byte, 0, 160), " 0 "...), q.Lease, 10)
	b = append(append(b, ' '), q.ID...)
	return string(q.append(append(b, ' ')))
}

func (q *Request) append(b []byte) []byte {
	b = strconv.AppendInt(b, q.Longest, 10)
	b = strconv.AppendInt(append(b, ' '), q.Lease, 10)
	b = append(append(b, ' '), q.Channel...)
	b = append(append(b, ' '), q.terms()...)
	for _, l := range q.Levels {
		b = append(append(b, ' '), l.Node...)
		b = strconv.AppendInt(append(b, ' '), l.Weight, 10)
		b = strconv.AppendInt(append(b, ' '), l.Limit, 10)
	}
	return b
}

// terms returns the metadata, followed by a semicolon and the share and floor of each level unless
// all levels have the defaults.
func (q *Request) terms() string {
	plain := true
	for _, l := range q.Levels {
		plain = plain && l.Share <= 1 && l.Floor == 0
	}
	if plain {
		return q.Metadata
	}
	var b strings.Builder
	b.WriteString(q.Metadata)
	separator := ";"
	for _, l := range q.Levels {
		b.WriteString(separator + strconv.FormatInt(max(1, l.Share), 10))
		b.WriteString("," + strconv.FormatInt(l.Floor, 10))
		separator = ","
	}
	return b.String()
}

// Status is the outcome of an acquire.
type Status int64

const (
	Held      Status = 1  // the caller holds the lease
	Waiting   Status = 0  // the caller waits in the queue
	Full      Status = -1 // there is no room, and the caller does not wait
	QueueFull Status = -2 // there is no room, and the queue has Request.Waiters waiters
	Evicted   Status = -3 // the id was forced out; see [Scope.Force]
)

// Grant is the reply to an acquire. Times are in microseconds.
type Grant struct {
	Status   Status
	Token    int64 // fencing token if held, otherwise the last one granted
	Position int64 // position in the queue, from 0
	// Next is the time until the scope's first lease ends, for a refused caller or a first waiter.
	// Otherwise, or if nothing is held, it is -1.
	Next int64
	Hold int64   // mean hold, 0 if unknown
	Left int64   // time until the lease ends, 0 if none is held
	Used []int64 // weight in use at each level
	Lone bool    // nobody else holds or waits in the scope
}

// Late reports whether a caller was refused beside leases that have ended, because one operation drops few
// of them. It asks again.
func (g *Grant) Late() bool { return g.Status == Full && g.Next == 0 }
