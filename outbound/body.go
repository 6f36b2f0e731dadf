package outbound

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// watch ends the pass when the body of a response has been read to its end, breaks off or is
// closed, or when the context of the request ends. It ends the pass now if the whole body is in
// memory, so that a request that is sent again has one pass at a time.
func (p *pass) watch(res *http.Response) {
	switch {
	case p.x.whole:
		p.end()
		return
	case p.stop == nil && p.stream == nil && !p.x.t.settles:
		return
	}
	b := &body{inner: res.Body, pass: p}
	b.stop = context.AfterFunc(p.x.given.Context(), b.abandon)
	if w, ok := res.Body.(io.Writer); ok { // of 101 Switching Protocols
		res.Body = duplex{b, w}
	} else {
		res.Body = b
	}
}

// body is the body of a response, whose end ends its pass.
type body struct {
	inner io.ReadCloser
	pass  *pass
	stop  func() bool

	reading sync.Mutex  // a Meter may read along
	over    atomic.Bool // closed or abandoned
}

// duplex is the body of a response with which both sides go on to write.
type duplex struct {
	*body
	io.Writer
}

// CloseWrite ends what this side writes, if the connection can. The other side may go on.
func (d duplex) CloseWrite() error {
	if c, ok := d.Writer.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return wrapped(http.ErrNotSupported)
}

// Read reads the body. At its end, or where it breaks off, the slot goes back.
func (b *body) Read(p []byte) (int, error) {
	b.reading.Lock()
	n, err := b.inner.Read(p)
	b.pass.look(p[:max(n, 0)])
	b.reading.Unlock()
	if err != nil || b.over.Load() {
		b.end()
	}
	if err != nil && err != io.EOF {
		err = b.pass.explain(err)
	}
	return n, err
}

// Close closes the body, and the slot goes back.
func (b *body) Close() error {
	err := b.inner.Close()
	b.end()
	return err
}

func (b *body) end() {
	b.stop()
	b.abandon()
}

// abandon ends the pass. A Read that still runs settles it when it returns, because a Meter may be
// reading along.
func (b *body) abandon() {
	b.over.Store(true)
	b.pass.release()
	if b.reading.TryLock() {
		b.pass.settle()
		b.reading.Unlock()
	}
}

// decoded returns the first bytes of a body without its Content-Encoding, at most that many, or the
// body if that is another than gzip.
func decoded(h http.Header, body []byte, most int64) []byte {
	if !strings.EqualFold(h.Get("Content-Encoding"), "gzip") {
		return body
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return body
	}
	text, _ := io.ReadAll(io.LimitReader(z, most)) // it may break off
	return text
}
