package nethttp

import (
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/core/once"
)

// attempt is the work on the id of one request.
type attempt struct {
	work      *once.Attempt
	succeeded func(r *http.Request, status int) bool // or nil
	recording *recording                             // or nil
}

// earlier is an earlier request with the id of one that is refused for it.
type earlier struct {
	busy    time.Duration // it runs, and may for that time
	handled bool          // it was handled
	differs bool          // it was another request
	answer  *answer       // that is repeated, or nil
	lost    loss          // why it is not
}

// before returns what is known of an earlier request with the id.
func (a *Admission) before() (e earlier) {
	if a.extra != nil && a.earlier != nil {
		e = *a.earlier
	}
	return e
}

// errID is wrapped by the errors of a ReplayConfig.ID.
var errID = errors.New("nethttp: id")

// end remembers or forgets the id, given the header and the status of the response. failed says that
// the handler has failed whatever the status is.
func (t *attempt) end(r *http.Request, h http.Header, status int, failed func() bool) {
	defer func() { _ = t.work.Fail(r.Context()) }() // does nothing after Succeed
	succeeded := status < http.StatusBadRequest
	if t.succeeded != nil {
		succeeded = t.succeeded(r, status)
	}
	if succeeded && !failed() {
		_ = t.work.SucceedWith(r.Context(), t.recording.end(h, r, status)) // it is sent again
	}
}
