package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
)

// PoolBusyError is the error of a request for which no upstream of a Pool has room in time. It has
// spent nothing.
type PoolBusyError struct {
	// Busy has the error of each busy upstream by its name.
	Busy map[string]*BusyError
	// Unreached has the error of each upstream to which no connection could be made. It may be nil.
	Unreached map[string]error
	// First is the name of the upstream that has room first.
	First string
}

func (e *PoolBusyError) Error() string {
	text := fmt.Sprintf("outbound: all %d upstreams are busy, and %s has room first: %v",
		len(e.Busy), e.First, e.Busy[e.First])
	for _, name := range slices.Sorted(maps.Keys(e.Unreached)) {
		text += fmt.Sprintf("; %s cannot be reached: %v", name, e.Unreached[name])
	}
	return text
}

// Unwrap returns the BusyError of First.
func (e *PoolBusyError) Unwrap() error { return e.Busy[e.First] }

// search looks for an upstream for one request.
type search struct {
	pool  *Pool
	given *http.Request
	req   *http.Request // has the body, which no upstream has read
	order []*candidate
	patience
	sent int
	res  *http.Response // the last refusal
}

// candidate is an upstream in a search.
type candidate struct {
	*upstream
	busy *BusyError // or nil
	lost error      // why it cannot be reached, or nil
}

// turn is how long a request waits for a slot of one upstream before it asks the others again.
const turn = 100 * time.Millisecond

// run asks all upstreams in their order, and then waits for the one that has room first, but no longer
// than until the next one has room: requests that come together would queue at one otherwise. Then run
// asks again those that may have room by now. It leaves out those that could not be reached, and those at
// which waiting does not help.
func (s *search) run() (*http.Response, error) {
	for {
		for _, c := range s.order {
			if c.lost != nil || c.busy != nil && c.busy.soon() > 0 {
				continue
			}
			if res, over, err := s.ask(c, 0); over {
				return res, err
			}
		}
		first, wait := s.next()
		if wait <= 0 {
			return s.fail(first)
		}
		began := time.Now()
		if res, over, err := s.ask(first, wait); over {
			return res, err
		}
		if first.busy != nil && first.busy.rank == bySlot { // the queue may be full
			rest := min(turn-time.Since(began), s.left())
			if err := first.Transport.hub.Keeper.Sleep(s.given.Context(), rest); err != nil {
				closeBody(s.req)
				return nil, wrapped(err)
			}
		}
	}
}

// next returns the upstream that has room first, or nil if none is busy, and how long to wait for it: until
// the next one has room, or 0 if it has none in time. Of those that cool until about the same time it takes
// any, so that not all requests go to one.
func (s *search) next() (first *candidate, wait time.Duration) {
	busy := slices.DeleteFunc(slices.Clone(s.order), func(c *candidate) bool { return c.busy == nil })
	left := s.left()
	room := make(map[*candidate]time.Duration, len(busy))
	for _, c := range busy {
		room[c] = c.busy.soon()
		if spread := min(longestSpread, left-room[c]); c.busy.rank == byCooldown && spread > 0 {
			room[c] += rand.N(spread) // but not behind those that have no room in time
		}
	}
	slices.SortStableFunc(busy, func(a, b *candidate) int {
		return cmp.Or(cmp.Compare(room[a], room[b]), cmp.Compare(a.busy.After, b.busy.After))
	})
	if len(busy) == 0 {
		return nil, 0
	}
	first, wait = busy[0], left
	spread := shortest
	if first.busy.Rule == coolingName {
		spread = longestSpread
	}
	switch {
	case first.busy.soon() > wait:
		wait = 0
	case first.busy.rank == bySlot:
		wait = min(wait, turn)
	case len(busy) > 1 && busy[1].busy.soon() < wait:
		wait = min(wait, max(0, busy[1].busy.soon())+spread)
	}
	return first, wait
}

// shortest is the least wait: an upstream may have had no room when it was asked, and have some by now.
const shortest = time.Millisecond

// soon returns when to ask the upstream again.
func (e *BusyError) soon() time.Duration {
	switch {
	case e.rank == bySlot:
		return 0
	case e.Spent || e.After == core.Never:
		return core.Never
	}
	return time.Until(e.At)
}

// fail returns the last refusal, or the error of a request that no upstream has taken.
func (s *search) fail(first *candidate) (*http.Response, error) {
	closeBody(s.req)
	if s.res != nil {
		return s.res, nil
	}
	e := &PoolBusyError{Busy: make(map[string]*BusyError), Unreached: make(map[string]error)}
	var unreached error
	for _, c := range s.order {
		if c.busy != nil {
			e.Busy[c.Name] = c.busy
		} else {
			e.Unreached[c.Name] = c.lost
			unreached = errors.Join(unreached, c.lost)
		}
	}
	if first == nil {
		return nil, unreached
	}
	e.First = first.Name
	if first.busy.Cause == nil && first.busy.After != core.Never {
		first.busy.Cause = s.cause
	}
	return nil, e
}

// aloneFor is for how long no request goes to an upstream to which no connection could be made.
const aloneFor = time.Second

// ask sends the request to an upstream if it has room within a time, and reports whether the search
// is over.
func (s *search) ask(c *candidate, wait time.Duration) (res *http.Response, over bool, err error) {
	if down := c.down.Load(); down != nil && time.Since(down.at) < aloneFor {
		c.busy = nil
		c.lost = down.err
		return nil, false, nil
	}
	req := s.given.Clone(s.given.Context())
	if c.Rewrite != nil {
		c.Rewrite(req)
	}
	req.Body, req.GetBody, req.ContentLength = s.req.Body, s.req.GetBody, s.req.ContentLength
	x, res, err := c.Transport.send(req, patience{until: time.Now().Add(wait), yields: s.yields}, 0)
	if err != nil {
		if !s.goesOn(c, x, err) {
			closeBody(x.req)
			return nil, true, err
		}
	} else {
		res.Request = s.given
		if s.sent == s.pool.cfg.Retry.Max || x.refusal == nil || !x.whole || !x.rewind() {
			return res, true, nil
		}
		s.sent++
		s.res = res
		c.busy = x.refusal
	}
	if m, ok := x.measure.(interface{ Restore(*http.Request) }); ok {
		m.Restore(x.req)
	}
	s.req = x.req
	return nil, false, nil
}

// goesOn reports whether a request that an upstream has not taken may go to another one.
func (s *search) goesOn(c *candidate, x *delivery, err error) bool {
	if busy := (*BusyError)(nil); x.sent == 0 && errors.As(err, &busy) { // otherwise it is Base's
		c.busy = busy
		return true
	}
	if !x.unsent || x.req.Context().Err() != nil || !x.rewind() {
		return false
	}
	c.down.Store(&unreached{time.Now(), err})
	c.busy = nil
	c.lost = err
	return true
}
