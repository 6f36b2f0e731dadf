package llm

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/llm/internal/wire"
)

// bodies bounds the bytes that the bodies of a Meter's requests take at a time, and shares them among
// keys, such as tenants.
type bodies struct {
	most int64
	mu   sync.Mutex
	held int64
	by   map[string]int64 // the part of each key
}

// take takes more bytes for a body that has taken some, or none if there are not as many left. One key
// leaves as much as it has, so n keys leave a part in n+1. Its only body may take all. With anyway it
// takes or gives back the bytes whatever is left.
func (b *bodies) take(key string, had, n int64, anyway bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine, left := b.by[key]+n, b.most-b.held-n
	if !anyway && (left < 0 || mine > had+n && mine > left) {
		return false
	}
	b.held += n
	if b.by[key] = mine; mine == 0 {
		delete(b.by, key)
	}
	return true
}

// heldBody is a body in memory that drops what has been read. An HTTP client may close it in one
// goroutine while another one reads.
type heldBody struct {
	of  *bodies
	key string

	mu   sync.Mutex
	rest []byte
	size int64 // bytes that it has taken of the bodies
}

// hold returns the body of bytes that have come. It may exceed the bound for one request.
func (b *bodies) hold(key string, bytes []byte) *heldBody {
	h := &heldBody{of: b, key: key, rest: bytes, size: int64(cap(bytes))}
	b.take(key, 0, h.size, true)
	return h
}

// firstBytes is the memory of a body of which nothing has come yet.
const firstBytes = 1 << 10

// fill reads the whole body, or most bytes of it. The memory grows with what has come, because a
// client need not send what it states. It reports false if the bodies have no room.
func (b *heldBody) fill(r io.Reader, stated, most int64) (room bool, err error) {
	if stated >= 0 {
		most = min(most, stated)
	}
	most += wire.UsageBytes // which are also room to read the end
	for err == nil {
		if n := len(b.rest); n == cap(b.rest) && !b.grow(min(most, int64(max(2*n, firstBytes)))) {
			return false, nil
		}
		n := 0
		n, err = r.Read(b.rest[len(b.rest):cap(b.rest)])
		if b.rest = b.rest[:len(b.rest)+n]; int64(len(b.rest)) >= most {
			return true, nil
		}
	}
	if err == io.EOF {
		err = nil
	}
	return true, err
}

// grow takes memory of the limit until the body has size bytes.
func (b *heldBody) grow(size int64) bool {
	if !b.of.take(b.key, b.size, size-b.size, false) {
		return false
	}
	b.size = size
	b.rest = append(make([]byte, 0, size), b.rest...)
	return true
}

// apply changes the body.
func (b *heldBody) apply(c wire.Change) {
	b.rest = c.Apply(b.rest)
	more := int64(cap(b.rest)) - b.size
	b.size += more
	b.of.take(b.key, 0, more, true)
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.rest)
	if b.rest = b.rest[n:]; len(b.rest) == 0 {
		b.drop()
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	return nil
}

func (b *heldBody) drop() {
	b.of.take(b.key, 0, -b.size, true)
	b.rest, b.size = nil, 0
}

const (
	// A client may take bodyPatience for a body, and a second for each leastRate bytes of it. A slower
	// one would hold memory of others for as long as it likes.
	bodyPatience = 10 * time.Second
	leastRate    = 16 << 10
)

// pacedBody is a body that must come at the least rate.
type pacedBody struct {
	io.Reader
	server *http.ResponseController
	begun  time.Time
	last   time.Time // by which the server wants all of it, or zero
	n      int64
}

func paced(w http.ResponseWriter, r *http.Request) *pacedBody {
	p := &pacedBody{Reader: r.Body, server: http.NewResponseController(w), begun: time.Now()}
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && s.ReadTimeout > 0 {
		p.last = p.begun.Add(s.ReadTimeout)
	}
	return p
}

// Read implements io.Reader.
func (p *pacedBody) Read(b []byte) (int, error) {
	by := p.begun.Add(bodyPatience + time.Duration(p.n)*time.Second/leastRate)
	if !p.last.IsZero() && p.last.Before(by) {
		by = p.last
	}
	_ = p.server.SetReadDeadline(by) // not every ResponseWriter can
	n, err := p.Reader.Read(b)
	p.n += int64(n)
	return n, err
}

// bodyKey returns whose share of the bodies a request takes. Its functions know no model yet.
func (m *Meter) bodyKey(r *http.Request, f *wire.Format) (key string) {
	x := &call{pricing: pricing{meter: m}, request: wire.Request{Target: wire.Target{Format: f}}}
	r = r.WithContext(context.WithValue(r.Context(), callKey{}, x))
	if m.cfg.Guard.Scope != nil {
		key, _ = m.cfg.Guard.Scope(r)
	}
	for i := 0; key == "" && i < len(m.cfg.Budgets); i++ {
		key, _ = m.cfg.Budgets[i].Key(r)
	}
	return key
}
