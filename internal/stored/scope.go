package stored

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/lease"
)

// Slots are the holders and the waiters of a semaphore at an outermost key.
type Slots struct {
	Semaphore string
	Outermost string
	Holders   []Holder // in the order in which their leases end
	Waiters   []Waiter // by their innermost keys, and in the order in which they are served
}

// Holder is a holder of a slot.
type Holder struct {
	ID    string
	Left  time.Duration // until the lease ends unless it is renewed; 0 if it is overdue
	Since time.Time
	lease.Record
}

// Waiter is a caller that waits for a slot.
type Waiter struct {
	ID    string
	Place int           // in the queue of its innermost key, from 0
	Left  time.Duration // until it loses its place unless it asks again
	lease.Record
}

// Node returns the innermost key.
func (h *Holder) Node() string { return h.Levels[len(h.Levels)-1].Node }

// Node returns the innermost key.
func (w *Waiter) Node() string { return w.Levels[len(w.Levels)-1].Node }

// rawScope is the parts of a scope, as Redis has them.
type rawScope struct {
	lone     string // in place of the others
	records  map[string]string
	holders  []redis.Z
	waiters  []string
	patience []redis.Z
}

// decode decodes a scope at a time in microseconds.
func (r *rawScope) decode(s *Slots, now int64) error {
	if r.lone != "" {
		return s.decodeLone(r.lone, now)
	}
	if scope := strings.Split(r.records["scope"], ","); len(scope) >= 5 {
		if ahead, err := strconv.ParseInt(scope[1], 10, 64); err == nil {
			now += ahead
		}
	}
	for _, z := range r.holders {
		id := fmt.Sprint(z.Member)
		text, known := r.records[id]
		if !known { // it was released between two reads
			continue
		}
		record, err := lease.Parse(text)
		if err != nil {
			return err
		}
		s.Holders = append(s.Holders, Holder{
			id, micros(max(0, int64(z.Score)-now)), time.UnixMicro(record.Granted).UTC(), record,
		})
	}
	ends := make(map[string]int64)
	for _, z := range r.patience {
		ends[fmt.Sprint(z.Member)] = int64(z.Score)
	}
	places := make(map[string]int)
	slices.Sort(r.waiters)
	for _, member := range r.waiters {
		words := strings.Fields(member) // node, ticket, id
		if strings.HasPrefix(member, "~") || len(words) != 3 {
			continue
		}
		record, err := lease.Parse(r.records[words[2]])
		if err != nil { // as above
			continue
		}
		s.Waiters = append(s.Waiters, Waiter{
			words[2], places[words[0]], micros(max(0, ends[words[2]]-now)), record,
		})
		places[words[0]]++
	}
	return nil
}

// decodeLone decodes "granted after left id request" of lua/lease/lone.lua.
func (s *Slots) decodeLone(text string, now int64) error {
	words := strings.SplitN(text, " ", 5)
	if len(words) != 5 {
		return fmt.Errorf("%w: lone holder %.80q", errLayout, text)
	}
	n, err := numbers(strings.Join(words[:3], " "), 3, 3)
	if err != nil {
		return err
	}
	granted, ends := n[0], n[0]+n[1]+n[2]
	record, err := lease.Parse(fmt.Sprintf("- %d %d %s", granted, granted, words[4]))
	if err != nil {
		return err
	}
	if ends > now {
		s.Holders = append(s.Holders, Holder{
			words[3], micros(ends - now), time.UnixMicro(granted).UTC(), record,
		})
	}
	return nil
}

// Cap is how one key stands at a semaphore.
type Cap struct {
	Node                 string
	Used, Limit, Waiting int64
}

// Caps returns the keys at which somebody holds or waits, in the order of their names. The limit is
// that of the holder or the waiter that came last.
func (s *Slots) Caps() []Cap {
	caps, newest := make(map[string]*Cap), make(map[string]int64)
	see := func(r *lease.Record, at int64, waits bool) {
		for _, l := range r.Levels {
			c := caps[l.Node]
			if c == nil {
				c = &Cap{Node: l.Node}
				caps[l.Node] = c
			}
			if at >= newest[l.Node] {
				newest[l.Node], c.Limit = at, l.Limit
			}
			if waits {
				c.Waiting++
			} else {
				c.Used += l.Weight
			}
		}
	}
	for i := range s.Holders {
		see(&s.Holders[i].Record, s.Holders[i].Granted, false)
	}
	for i := range s.Waiters {
		see(&s.Waiters[i].Record, 1<<62, true)
	}
	all := make([]Cap, 0, len(caps))
	for _, c := range caps {
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Cap) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
