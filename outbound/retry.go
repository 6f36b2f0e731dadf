package outbound

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// Retry sends requests again that the upstream has refused because of a limit, after the cooldown
// that the refusal began, and as its rules have room.
// Each time the request is decided anew. The zero value sends none again.
//
// Only a request is sent again whose body is empty or can be had anew from http.Request.GetBody,
// and not once a byte of a response was handed out. A request that finds no room within
// Config.MaxWait returns the refusal.
type Retry struct {
	// Max is how often a request is sent again: at most 10.
	Max int
}

// again reports whether to send the request again, and gives it a new body if so. The cooldown makes
// it wait.
func (x *delivery) again(res *http.Response, retries int) bool {
	r := x.refusal
	return r != nil && r.After != core.Never && !r.Spent && x.sent <= retries &&
		res.Header.Get("X-Should-Retry") != "false" && x.whole && x.rewind()
}

// rewind gives a request a new body, and reports whether it could.
func (x *delivery) rewind() bool {
	copied := *x.req
	if x.req.Body != nil && x.req.Body != http.NoBody {
		if x.req.GetBody == nil {
			return false
		}
		body, err := x.req.GetBody()
		if err != nil {
			return false
		}
		copied.Body = body
	}
	x.req = &copied
	return true
}
