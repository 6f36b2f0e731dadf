package llm

import (
	"net/http"
	"strconv"
	"strings"
)

// replaceBody gives a request the body for the server. The body drops its bytes once they have been
// read, because the response may take minutes.
func (x *call) replaceBody(r *http.Request) {
	r.Body, r.Header = x.body, r.Header.Clone()
	if n := len(x.body.rest); int64(n) != r.ContentLength || x.hides {
		r.ContentLength = int64(n)
		r.Header.Set("Content-Length", strconv.Itoa(n))
		r.TransferEncoding = nil
	}
	accept, ends := "identity", x.request.Stream && x.meter.cfg.Overrun == OverrunEnd
	if !x.hides && !ends && acceptsGzip(r.Header) {
		accept = "gzip" // the only encoding that a Tap decodes
	}
	r.Header.Set("Accept-Encoding", accept)
}

// acceptsGzip reports whether a client accepts gzip. It need not say so of one that prefers
// something else.
func acceptsGzip(h http.Header) bool {
	accepted := strings.ToLower(strings.Join(h.Values("Accept-Encoding"), ","))
	accepted = strings.ReplaceAll(accepted, " ", "")
	return strings.Contains(accepted, "gzip") && !strings.Contains(accepted, "gzip;q=0")
}
