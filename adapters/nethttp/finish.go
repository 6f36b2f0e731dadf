package nethttp

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// Finish settles what depends on the response, which had this status, and releases the request's slot, unless it
// was detached. An adapter calls it for every admission, with the request that the handler was given, when that has returned,
// panicked or refused. What panics before it has answered counts as 500. Later calls do nothing. What fails is told to
// core.Config.Observe: then the cost stays spent, and the slot is free when its lease ends.
//
// It returns the request for those around the guard, if the adapter shows them the handler's: its context has the admission,
// and does not end with the lease.
func (a *Admission) Finish(r *http.Request, status int) *http.Request {
	if a.exempt || a.done.Swap(true) || a.paid == nil && a.lease == nil {
		return r
	}
	ctx := r.Context()
	defer func() { _ = a.lease.Release(ctx) }() // also where a Settle panics
	if a.settles() {
		a.settle(r, status)
	}
	if a.lease == nil {
		return r
	}
	return r.WithContext(context.WithValue(a.around, contextKey{}, a))
}

// settles says whether something that was spent depends on the response.
func (a *Admission) settles() bool { return a.paid != nil && a.guard.settles }

func (a *Admission) settle(r *http.Request, status int) {
	actual := make([]int64, a.decision.Len())
	for i, at := range a.rules {
		actual[i] = a.costs[i]
		if settle := a.guard.cfg.Rules[at].Settle; settle != nil {
			actual[i] = max(0, settle(r, status, actual[i]))
		}
	}
	_ = a.paid.Settle(r.Context(), actual...)
}

// response is what has become of a ResponseWriter.
type response struct{ status int }

// code is the status of a handler that has returned, or else panicked.
func (r *response) code(returned bool) int {
	switch {
	case r.status != 0:
		return r.status
	case returned:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

// sent notes the first status. Informational ones come before it, but for the last of them.
func (r *response) sent(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = status
	}
}

// watch returns the writer to serve the request with. It is w itself unless a rule depends on the response, and else has
// the same optional interfaces as w, and Unwrap.
func (a *Admission) watch(w http.ResponseWriter) (http.ResponseWriter, *response) {
	seen := new(response)
	if !a.settles() {
		return w, seen
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) { seen.sent(status); next(status) }
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { seen.sent(http.StatusOK); return next(b) }
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { seen.sent(http.StatusOK); return next(s) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := next(src)
				if n > 0 { // else the handler may still say that src failed
					seen.sent(http.StatusOK)
				}
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { seen.sent(http.StatusOK); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { seen.sent(http.StatusOK); return next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					seen.sent(http.StatusSwitchingProtocols)
				}
				return conn, rw, err
			}
		},
	}), seen
}
