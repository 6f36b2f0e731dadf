package nethttp

import (
	"bufio"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// Finish settles what depends on the response, which had this status, and releases the request's slot, unless it
// was detached. An adapter calls it for every admission when the handler has returned or panicked, which counts as
// 500. Later calls do nothing. What fails is told to core.Config.Observe: then the cost stays spent, and the slot is free when its
// lease ends.
func (a *Admission) Finish(r *http.Request, status int) {
	if a.paid == nil && a.lease == nil {
		return
	}
	ctx := r.Context()
	defer func() { _ = a.lease.Release(ctx) }()
	if a.paid == nil || !a.guard.settles {
		return
	}
	actual := make([]int64, a.decision.Len())
	for i, at := range a.rules {
		actual[i] = a.costs[i]
		if settle := a.guard.cfg.Rules[at].Settle; settle != nil {
			actual[i] = max(0, settle(r, status, actual[i]))
		}
	}
	_ = a.paid.Settle(ctx, actual...)
}

// response is what has become of a ResponseWriter.
type response struct{ status int }

// watch returns the writer to serve the request with, and a function that tells the status in the end. It is w itself unless
// a rule depends on the response, and else has the same optional interfaces as w, and Unwrap.
func (a *Admission) watch(w http.ResponseWriter) (http.ResponseWriter, *response) {
	seen := new(response)
	if a.paid == nil || !a.guard.settles {
		return w, seen
	}
	wrote := func(status int) {
		// Informational responses come before the real one, but for the last of them.
		if seen.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
			seen.status = status
		}
	}
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) {
				wrote(status)
				next(status)
			}
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					wrote(http.StatusSwitchingProtocols)
				}
				return conn, rw, err
			}
		},
	}), seen
}

// code is the status of a handler that has returned.
func (s *response) code() int {
	if s.status == 0 {
		return http.StatusOK
	}
	return s.status
}
