package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/stored"
)

// Slots is how a subject stands at a semaphore.
type Slots struct {
	Semaphore *semaphore.Semaphore
	Key       core.Key // of the subject
	// Caps are those of the subject and of the keys around it, outermost first, at which somebody
	// holds a slot or waits.
	Caps []Cap
	// Holders are those at the key or below it, and Others those at other keys of its outermost part, in
	// the order in which their leases end.
	Holders, Others []Holder
	// Waiters are those at the key or below it, by their keys and in the order in which they are served.
	// OthersWait are how many wait at other keys of its outermost part.
	Waiters    []Waiter
	OthersWait int
}

// Cap is how one key stands at a semaphore.
type Cap struct {
	Key  core.Key `json:"-"`
	Used int64    `json:"used"` // as the weights of the holders add up
	// Limit is that of the holder or waiter that came last.
	Limit   int64 `json:"limit"`
	Waiting int   `json:"waiting"`
	newest  int64
}

// IsFull reports whether the cap has no room for a weight of 1.
func (c *Cap) IsFull() bool { return c.Used >= c.Limit }

// Holder is a holder of a slot.
type Holder struct {
	ID     string            `json:"id"`
	Key    core.Key          `json:"-"` // the innermost one
	Token  int64             `json:"token"`
	Weight int64             `json:"weight"`
	Since  time.Time         `json:"-"`
	Until  time.Time         `json:"-"` // when the lease ends unless it is renewed
	Meta   map[string]string `json:"meta"`
}

// Waiter is a caller that waits for a slot.
type Waiter struct {
	ID     string            `json:"id"`
	Key    core.Key          `json:"-"`     // the innermost one
	Place  int               `json:"place"` // in the queue of its key, from 1
	Weight int64             `json:"weight"`
	Since  time.Time         `json:"-"`
	Meta   map[string]string `json:"meta"`
}

// IsFull reports whether the next request of the subject would not be granted a slot at once.
func (s *Slots) IsFull() bool {
	for i := range s.Caps {
		c := &s.Caps[i]
		if c.IsFull() || c.Key == s.Key && c.Waiting > 0 {
			return true
		}
	}
	return false
}

// slots fills in how a subject stands at each semaphore.
func (i *Inspector) slots(ctx context.Context, s *Subject) {
	for _, sem := range i.cfg.Semaphores {
		one, err := i.Slots(ctx, sem, s.Key)
		if err != nil {
			s.fault("the slots of "+sem.Name(), err)
			continue
		}
		s.Slots = append(s.Slots, one)
	}
}

// Slots returns how a subject stands at a semaphore.
func (i *Inspector) Slots(
	ctx context.Context, sem *semaphore.Semaphore, key core.Key,
) (Slots, error) {
	s := Slots{Semaphore: sem, Key: key}
	now, entries, err := semaphore.Inside(hub.Pass{}).Entries(ctx, sem, key)
	if err != nil {
		return s, err
	}
	for _, k := range around(key) {
		s.Caps = append(s.Caps, Cap{Key: k})
	}
	places, here := make(map[string]int), i.now()
	for _, e := range entries {
		if e.Left == 0 { // a holder whose lease has ended: the next acquire takes its slot
			continue
		}
		r, err := lease.Parse(e.Record)
		if err != nil {
			return s, fmt.Errorf("inspect: slots of %s: %w", sem.Name(), err)
		}
		leaf := r.Levels[len(r.Levels)-1]
		at := core.Inside(hub.Pass{}).KeyAt(leaf.Node)
		ago := func(t int64) time.Time { return here.Add(time.Duration(t-now) * time.Microsecond) }
		s.count(&r, e.Left < 0)
		own := stored.Within(leaf.Node, key.String())
		switch {
		case e.Left < 0 && !own:
			s.OthersWait++
		case e.Left < 0:
			places[leaf.Node]++
			s.Waiters = append(s.Waiters, Waiter{
				ID: e.ID, Key: at, Place: places[leaf.Node], Weight: leaf.Weight,
				Since: ago(min(r.Queued, now)), Meta: r.Values(),
			})
		default:
			to := &s.Others
			if own {
				to = &s.Holders
			}
			*to = append(*to, Holder{
				ID: e.ID, Key: at, Token: r.Token, Weight: leaf.Weight,
				Since: ago(r.Granted), Until: ago(now + e.Left), Meta: r.Values(),
			})
		}
	}
	s.Caps = slices.DeleteFunc(s.Caps, func(c Cap) bool { return c.Limit == 0 }) // nobody names it
	return s, nil
}

// count counts a holder or a waiter at the caps.
func (s *Slots) count(r *lease.Record, waits bool) {
	came := cmp.Or(r.Queued, r.Granted)
	for at := range s.Caps {
		c := &s.Caps[at]
		for _, l := range r.Levels {
			if l.Node != c.Key.String() {
				continue
			}
			if came >= c.newest {
				c.newest, c.Limit = came, l.Limit
			}
			if waits {
				c.Waiting++
			} else {
				c.Used += l.Weight
			}
		}
	}
}
