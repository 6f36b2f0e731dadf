package outbound

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	until time.Time
	cause error // why until is no later, or nil
	sent  int
	res   *http.Response // the last refusal
}

// turn is how long a request waits for a slot of one upstream before it asks the others again.
const turn = 100 * time.Millisecond

// run asks all upstreams in their order, and then waits for the one that has room first, but no longer
// than until the next one has room: requests that come together would queue at one otherwise. Then run
// asks again those that may have room by now. It leaves out those that could not be reached, and those at
// which waiting does not help.
func (s *search) run(order []*Upstream) (*http.Response, error) {
	busy := &PoolBusyError{Busy: make(map[string]*BusyError, len(order))}
	for {
		for _, u := range order {
			_, down := busy.Unreached[u.Name]
			if e := busy.Busy[u.Name]; down || e != nil && e.soon() > 0 {
				continue
			}
			if res, over, err := s.ask(u, 0, busy); over {
				return res, err
			}
		}
		first := busy.soonest(order)
		if first == nil {
			break
		}
		wait := s.patience(busy, order)
		if wait <= 0 {
			break
		}
		began := time.Now()
		if res, over, err := s.ask(first, wait, busy); over {
			return res, err
		}
		if e := busy.Busy[first.Name]; e != nil && e.rank == bySlot { // the queue may be full
			rest := min(turn-time.Since(began), time.Until(s.until))
			if err := first.Transport.keeper.Sleep(s.given.Context(), rest); err != nil {
				closeBody(s.req)
				return nil, wrapped(err)
			}
		}
	}
	return s.fail(order, busy)
}

// shortest is the least wait: an upstream may have had no room when it was asked, and have some by now.
const shortest = time.Millisecond

// patience returns how long to wait for the upstream that has room first, or 0 if it has none in time.
func (s *search) patience(busy *PoolBusyError, order []*Upstream) time.Duration {
	e, left := busy.Busy[busy.First], time.Until(s.until)
	switch {
	case e.Spent || e.soon() > left:
		return 0
	case e.rank == bySlot:
		return min(left, turn)
	}
	spread := time.Duration(0)
	if e.Rule == coolingName {
		spread = longestSpread
	}
	for _, u := range order {
		if other := busy.Busy[u.Name]; other != nil && other != e && !other.Spent && other.After != core.Never {
			soon := other.soon() + spread
			if other.rank == bySlot {
				soon = turn
			}
			left = min(left, max(soon, shortest))
		}
	}
	return left
}

// soon returns when to ask the upstream again.
func (e *BusyError) soon() time.Duration {
	switch {
	case e.rank == bySlot:
		return 0
	case e.After == core.Never:
		return core.Never
	}
	return time.Until(e.At)
}

// fail returns the last refusal, or the error of a request that no upstream has taken.
func (s *search) fail(order []*Upstream, busy *PoolBusyError) (*http.Response, error) {
	closeBody(s.req)
	if s.res != nil {
		return s.res, nil
	}
	if busy.soonest(order) == nil {
		var errs []error
		for _, u := range order {
			errs = append(errs, busy.Unreached[u.Name])
		}
		return nil, errors.Join(errs...)
	}
	if e := busy.Busy[busy.First]; s.cause != nil && e.Cause == nil && e.After != core.Never {
		e.Cause = s.cause
	}
	return nil, busy
}

// soonest returns the upstream that has room first, and names it. It returns nil if none is busy.
func (e *PoolBusyError) soonest(order []*Upstream) *Upstream {
	var first *Upstream
	var best *BusyError
	for _, u := range order {
		b := e.Busy[u.Name]
		if b == nil {
			continue
		}
		sooner := best == nil || cmp.Or(cmp.Compare(b.soon(), best.soon()), cmp.Compare(b.After, best.After)) < 0
		if best == nil || b.Spent == best.Spent && sooner || best.Spent && !b.Spent {
			first, best = u, b
		}
	}
	if first != nil {
		e.First = first.Name
	}
	return first
}

// aloneFor is for how long no request goes to an upstream to which no connection could be made.
const aloneFor = time.Second

// unreached is that no connection to an upstream could be made.
type unreached struct {
	at  time.Time
	err error
}

// lose notes that an upstream cannot be reached.
func (e *PoolBusyError) lose(u *Upstream, err error) {
	if e.Unreached == nil {
		e.Unreached = make(map[string]error)
	}
	e.Unreached[u.Name] = err
	delete(e.Busy, u.Name)
}

// ask sends the request to an upstream if it has room within a time, and reports whether the search
// is over.
func (s *search) ask(
	u *Upstream, wait time.Duration, busy *PoolBusyError,
) (res *http.Response, over bool, err error) {
	if down := u.down.Load(); down != nil && time.Since(down.at) < aloneFor {
		busy.lose(u, down.err)
		return nil, false, nil
	}
	req := s.requestFor(u)
	if skip := u.Transport.cfg.Skip; skip != nil && skip(req) {
		res, err = u.Transport.cfg.Base.RoundTrip(req)
		return res, true, err
	}
	x, err := u.Transport.open(req)
	if err != nil {
		closeBody(req)
		return nil, true, err
	}
	res, err = x.roundTrip(wait)
	s.req = x.req
	if err != nil {
		return nil, !s.goesOn(u, x, err, busy), err
	}
	res.Request = s.given
	if s.sent++; s.sent > s.pool.cfg.Retry.Max || x.refusal == nil || !x.renew(res) {
		return res, true, nil
	}
	s.req, s.res = x.restored(), res
	busy.Busy[u.Name] = x.refusal
	return nil, false, nil
}

// goesOn reports whether a request that an upstream has not taken may go to another one.
func (s *search) goesOn(u *Upstream, x *exchange, err error, busy *PoolBusyError) bool {
	if e := (*BusyError)(nil); x.sent == 0 && errors.As(err, &e) { // otherwise it is Base's
		s.req, busy.Busy[u.Name] = x.restored(), e
		return true
	}
	if !x.unsent || x.req.Context().Err() != nil || !x.rewind() {
		return false
	}
	s.req = x.restored()
	u.down.Store(&unreached{time.Now(), err})
	busy.lose(u, err)
	return true
}

// restored returns the request with a body that says what its caller gave.
func (x *exchange) restored() *http.Request {
	if m, ok := x.measure.(interface{ Restore(*http.Request) }); ok {
		m.Restore(x.req)
	}
	return x.req
}

// requestFor returns the request as an upstream gets it.
func (s *search) requestFor(u *Upstream) *http.Request {
	var req *http.Request
	if u.Rewrite == nil {
		copied := *s.given
		req = &copied
	} else {
		req = s.given.Clone(s.given.Context())
		u.Rewrite(req)
	}
	req.Body, req.GetBody, req.ContentLength = s.req.Body, s.req.GetBody, s.req.ContentLength
	return req
}
