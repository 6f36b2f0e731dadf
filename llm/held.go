package llm

import (
	"io"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/llm/internal/wire"
)

// bodies bounds the bytes that the bodies of a Meter's requests take at a time.
type bodies struct {
	most int64
	held atomic.Int64
}

// take takes more bytes, or none if there are not as many left.
func (b *bodies) take(n int64) bool {
	if b.held.Add(n) <= b.most {
		return true
	}
	b.held.Add(-n)
	return false
}

// heldBody is a body in memory that drops what has been read. An HTTP client may close it in one
// goroutine while another one reads.
type heldBody struct {
	of *bodies

	mu   sync.Mutex
	rest []byte
	size int64 // bytes that it has taken of the bodies
}

// hold returns the body of bytes that have come. It may exceed the bound for one request.
func (b *bodies) hold(bytes []byte) *heldBody {
	h := &heldBody{of: b, rest: bytes, size: int64(cap(bytes))}
	b.held.Add(h.size)
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

// grow gives the body the memory of so many bytes.
func (b *heldBody) grow(size int64) bool {
	if !b.of.take(size - b.size) {
		return false
	}
	b.size = size
	b.rest = append(make([]byte, 0, size), b.rest...)
	return true
}

// injectUsage has the server state the usage of a stream.
func (b *heldBody) injectUsage() {
	b.rest = wire.InjectUsage(b.rest)
	more := int64(cap(b.rest)) - b.size
	b.size += more
	b.of.held.Add(more)
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
	b.of.held.Add(-b.size)
	b.rest, b.size = nil, 0
}
