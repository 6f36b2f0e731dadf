package nethttp

import (
	"errors"
	"net/http"

	"github.com/headgate/headgate/core/once"
)

// attempt is the work on the id of one request.
type attempt struct {
	work      *once.Attempt
	succeeded func(r *http.Request, status int) bool // or nil
	recording *recording                             // or nil
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
