package llm

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// replaceBody gives a request the body for the server. The exchange keeps none, and the request
// drops it once it has been read, because the response may take minutes.
func (x *exchange) replaceBody(r *http.Request) {
	r.Body, r.Header = &onceBody{rest: x.body}, r.Header.Clone()
	if int64(len(x.body)) != r.ContentLength || x.hides {
		r.ContentLength = int64(len(x.body))
		r.Header.Set("Content-Length", strconv.Itoa(len(x.body)))
		r.TransferEncoding = nil
	}
	accept := "identity"
	if !x.hides && acceptsGzip(r.Header) {
		accept = "gzip" // the only encoding that a Tap decodes
	}
	r.Header.Set("Accept-Encoding", accept)
	x.body = nil
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

// onceBody is a body that drops what has been read. An HTTP client may close it in one goroutine
// while another one reads.
type onceBody struct {
	mu   sync.Mutex
	rest []byte
}

func (b *onceBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rest) == 0 {
		b.rest = nil
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		b.rest = nil
	}
	return n, nil
}

func (b *onceBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = nil
	return nil
}
