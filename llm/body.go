package llm

import (
	"net/http"
	"strconv"
	"strings"
)

// replaceBody gives a request the body for the server. The body drops its bytes once they have been
// read, because the response may take minutes.
func (x *exchange) replaceBody(r *http.Request) {
	r.Body, r.Header = x.body, r.Header.Clone()
	if n := len(x.body.rest); int64(n) != r.ContentLength || x.hides {
		r.ContentLength = int64(n)
		r.Header.Set("Content-Length", strconv.Itoa(n))
		r.TransferEncoding = nil
	}
	accept := "identity"
	if !x.hides && acceptsGzip(r.Header) {
		accept = "gzip" // the only encoding that a Tap decodes
	}
	r.Header.Set("Accept-Encoding", accept)
}

// acceptsGzip reports whether a client accepts gzip (RFC 9110, section 12.5.3).
func acceptsGzip(h http.Header) bool {
	for part := range strings.SplitSeq(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, q, _ := strings.Cut(weight, "=")
			n, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return weight == "" || err == nil && n > 0
		}
	}
	return false
}
