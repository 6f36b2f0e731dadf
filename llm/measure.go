package llm

import (
	"io"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// measure is what an Outbound knows of one request and its response. It implements outbound.Measure.
type measure struct {
	*call
	counts bool // the provider counts the cap
	bill   *Bill
	given  func() []byte // returns the body as the caller gave it, or nil if it is sent so
}

// Restore gives a request the body that its caller gave it, for another upstream.
func (m *measure) Restore(r *http.Request) {
	if m.given != nil {
		replay(r, m.given(), false)
	}
}

// Model returns the model as the request spells it.
func (m *measure) Model() string { return m.request.Model }

// Estimate returns the units that the request is expected to use.
func (m *measure) Estimate(unit core.Unit) int64 {
	b := m.expected(m.estimate)
	return m.units(unit, &b)
}

// Response reads along with the response of an answered request.
func (m *measure) Response(res *http.Response) {
	x := m.call
	x.status, x.tap, m.bill = res.StatusCode, nil, nil
	if res.StatusCode/100 != 2 {
		return
	}
	x.tap = wire.NewTap(&x.request, res.Header, x.hides)
	x.empty = true
	if x.tap.Hides() {
		res.Header.Del("Content-Length")
		res.ContentLength = -1
	}
	if res.Body != http.NoBody {
		res.Body = &tappedBody{inner: res.Body, x: x}
	}
}

// Actual returns the units that the request has used. False leaves the estimate: the provider counts
// the cap of a request that it has answered.
func (m *measure) Actual(unit core.Unit) (int64, bool) {
	if m.bill == nil {
		m.bill = m.end()
	}
	if m.counts && m.tap != nil {
		return 0, false
	}
	return m.units(unit, m.bill), true
}

// end reads no more of the response, and returns what it has used.
func (m *measure) end() *Bill {
	if m.tap != nil {
		_ = m.tap.Close(m.empty, nil) // without an out it cannot fail
	}
	outcome, bill := m.outcome()
	if outcome == OutcomeReported {
		m.learn(bill.Usage)
	}
	return &bill
}

// tappedBody passes the body of a response through the tap of its call.
type tappedBody struct {
	inner io.ReadCloser
	x     *call
	out   []byte // what the tap has passed on, if it may hide a part
	err   error  // of inner
}

// Read implements io.Reader.
func (b *tappedBody) Read(p []byte) (int, error) {
	tap := b.x.tap
	var keep func([]byte) error
	if tap.Hides() || len(b.out) > 0 {
		keep = func(p []byte) error {
			b.out = append(b.out, p...)
			return nil
		}
	}
	for len(b.out) == 0 && b.err == nil && len(p) > 0 {
		var n int
		n, b.err = b.inner.Read(p)
		b.x.empty = b.x.empty && n == 0
		_, _ = tap.Write(p[:n], false, keep) // keep cannot fail
		if b.err != nil {
			_ = tap.Close(b.err == io.EOF, keep)
		}
		if keep == nil {
			return n, b.err
		}
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	if len(b.out) == 0 {
		return n, b.err
	}
	return n, nil
}

// Close implements io.Closer.
func (b *tappedBody) Close() error { return b.inner.Close() }
