package outbound

import (
	"context"
	"io"
	"net/http"
	"time"
)

// bodyPatience bounds how long the body of a refusal is read, so that one that hangs holds up
// neither the response nor its cooldown.
const bodyPatience = 250 * time.Millisecond

// ahead is the body of a response whose first bytes are read in the background.
type ahead struct {
	inner io.ReadCloser
	parts chan []byte // what is read ahead; it is closed when nothing more is
	err   error       // behind the parts
	head  []byte      // of the parts, and not yet handed on
	stop  func()      // ends the reading ahead
}

// readAhead reads the first bytes of the body of a response, about that many at most and for
// bodyPatience. It gives the response a body as if nothing had been read, and returns what was read
// and whether that is all of it.
func readAhead(res *http.Response, most int) (head []byte, whole bool) {
	ctx, stop := context.WithCancel(context.Background())
	a := &ahead{inner: res.Body, parts: make(chan []byte), stop: stop}
	res.Body = a
	go a.fill(ctx, most)
	timer := time.NewTimer(bodyPatience)
	defer timer.Stop()
	for reads := true; reads; {
		select {
		case part, more := <-a.parts:
			a.head = append(a.head, part...)
			reads = more
			whole = !more && a.err == io.EOF
		case <-timer.C:
			reads = false
		}
	}
	if whole {
		_ = a.Close() // it has been read
	}
	return a.head, whole
}

// fill reads the first bytes of the body.
func (a *ahead) fill(ctx context.Context, most int) {
	defer close(a.parts)
	for size := 0; size <= most && a.err == nil; {
		chunk := make([]byte, 4<<10)
		var n int
		n, a.err = a.inner.Read(chunk)
		size += n
		select {
		case a.parts <- chunk[:n]:
		case <-ctx.Done():
			return
		}
	}
}

// Read reads what was read ahead, and then the rest of the body.
func (a *ahead) Read(p []byte) (n int, err error) {
	for len(a.head) == 0 {
		part, more := <-a.parts
		switch {
		case more:
			a.head = part
		case a.err != nil:
			return 0, a.err
		default:
			return a.inner.Read(p)
		}
	}
	n = copy(p, a.head)
	a.head = a.head[n:]
	return n, nil
}

// Close closes the body, which also ends a reading ahead.
func (a *ahead) Close() error {
	a.stop()
	return a.inner.Close()
}
