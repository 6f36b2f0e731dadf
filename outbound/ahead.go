package outbound

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// bodyPatience bounds how long the body of a refusal is read, so that one that hangs holds up
// neither the response nor its cooldown.
const bodyPatience = 250 * time.Millisecond

// ahead is the body of a response whose first bytes are read in the background.
type ahead struct {
	inner  io.ReadCloser
	parts  chan []byte // what is read ahead; it is closed when nothing more is
	err    error       // behind the parts
	head   []byte      // of the parts, and not yet handed on
	closed chan struct{}
	close  sync.Once
}

// readAhead reads the first bytes of the body of a response, about that many at most and for
// bodyPatience. It gives the response a body as if nothing had been read, and returns what was read
// and whether that is all of it.
func readAhead(res *http.Response, most int) (head []byte, whole bool) {
	a := &ahead{inner: res.Body, parts: make(chan []byte), closed: make(chan struct{})}
	res.Body = a
	go a.fill(most)
	timer := time.NewTimer(bodyPatience)
	defer timer.Stop()
	for {
		select {
		case part, more := <-a.parts:
			a.head = append(a.head, part...)
			if more {
				continue
			}
			if whole = a.err == io.EOF; whole {
				_ = a.inner.Close() // it has been read
			}
			if whole && len(a.head) == 0 {
				res.Body = http.NoBody
			}
		case <-timer.C:
		}
		return a.head, whole
	}
}

func (a *ahead) fill(most int) {
	defer close(a.parts)
	defer func() {
		if r := recover(); r != nil { // nobody could recover from it here
			a.err = fmt.Errorf("outbound: the body of the response panics: %v", r)
		}
	}()
	for size := 0; size <= most && a.err == nil; {
		chunk := make([]byte, 4<<10)
		var n int
		n, a.err = a.inner.Read(chunk)
		size += n
		select {
		case a.parts <- chunk[:n]:
		case <-a.closed:
			return
		}
	}
}

// Read reads what was read ahead, and then the rest of the body.
func (a *ahead) Read(p []byte) (n int, err error) {
	for more := true; len(a.head) == 0; {
		if a.head, more = <-a.parts; more {
			continue
		}
		if a.err != nil {
			return 0, a.err
		}
		return a.inner.Read(p)
	}
	n = copy(p, a.head)
	a.head = a.head[n:]
	return n, nil
}

// Close closes the body, which also ends a reading ahead.
func (a *ahead) Close() error {
	a.close.Do(func() { close(a.closed) })
	return a.inner.Close()
}
