package keeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/request"
)

// maxReturns bounds the slots whose release is repeated.
const maxReturns = 10_000

// again is the first pause between two attempts to give back a slot, and soon the shortest between two
// renewals.
const (
	again = 250 * time.Millisecond
	soon  = 10 * time.Millisecond
)

// giveBack is a slot whose release failed. The Keeper repeats the release for longer than the lease
// would last, because a server that stood still may run the acquire when it resumes: the lease
// begins then. After the first pause each is an eighth of the time since the first failure, and the
// last one is as long as the lease.
type giveBack struct {
	place
	id     string
	ttl    time.Duration
	failed time.Time // first
	due    time.Time
	until  time.Time // is forgotten then
	sent   bool      // and not answered
}

// place is where slots of one scope are.
type place struct {
	store request.LeaseStore
	scope string
}

// returns are the slots to give back, the oldest first.
type returns []*giveBack

func (r *returns) add(g *giveBack) {
	if len(*r) >= maxReturns {
		*r = slices.Delete(*r, 0, 1) // the oldest, whose lease ends first
	}
	*r = append(*r, g)
}

// due returns the slots to release now, grouped by scope, and when to look again. It forgets slots
// whose time is over.
func (r *returns) due(now time.Time) (due [][]*giveBack, next time.Time) {
	at := make(map[place]int)
	next = now.Add(time.Hour)
	rest := (*r)[:0]
	for _, g := range *r {
		if now.After(g.until) {
			continue
		}
		rest = append(rest, g)
		switch {
		case g.sent:
		case now.Add(again / 2).Before(g.due): // those that are almost due go together
			if g.due.Before(next) {
				next = g.due
			}
		default:
			g.sent = true
			i, ok := at[g.place]
			if !ok || len(due[i]) == maxPerCall {
				i, at[g.place] = len(due), len(due)
				due = append(due, nil)
			}
			due[i] = append(due[i], g)
		}
	}
	clear((*r)[len(rest):])
	*r = rest
	return due, next
}

// slots are ids of leases by the place where they are.
type slots map[place][]string

func (s slots) add(p place, id string) { s[p] = append(s[p], id) }

// release releases all slots at the same time, with one call for each place.
func (s slots) release(ctx context.Context) error {
	var mu sync.Mutex
	var errs []error
	var calls sync.WaitGroup
	for p, ids := range s {
		for some := range slices.Chunk(ids, maxPerCall) {
			calls.Go(func() {
				err := p.store.Release(ctx, p.scope, some)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			})
		}
	}
	calls.Wait()
	return errors.Join(errs...)
}
