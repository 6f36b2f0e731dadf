package outbound

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodySoon is how soon the body of a refusal usually follows its headers. After that the headers
	// count on their own.
	bodySoon = 10 * time.Millisecond
	// bodyPatience bounds how long the body of a refusal is read, so that one that hangs holds up
	// neither the response nor its cooldown.
	bodyPatience = 250 * time.Millisecond
)

// ahead is the body of a response whose first bytes are read in the background.
type ahead struct {
	inner  io.ReadCloser
	parts  chan []byte // what is read ahead; it is closed when nothing more is
	err    error       // behind the parts
	head   []byte      // of the parts, and not yet handed on
	closed chan struct{}
	close  sync.Once
}

// readAhead begins to read the first bytes of a body, about that many at most.
func readAhead(body io.ReadCloser, most int) *ahead {
	a := &ahead{inner: body, parts: make(chan []byte), closed: make(chan struct{})}
	go a.fill(most)
	return a
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

// within reads for that long at most, and reports whether the reading ahead has ended.
func (a *ahead) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case part, more := <-a.parts:
			if !more {
				return true
			}
			a.head = append(a.head, part...)
		case <-timer.C:
			return false
		}
	}
}

// handOver gives the response a body as if nothing had been read, and returns what was read and
// whether that is all of it.
func (a *ahead) handOver(res *http.Response, ended bool) (head []byte, whole bool) {
	head, res.Body = a.head, a
	if whole = ended && a.err == io.EOF; whole {
		_ = a.inner.Close() // it has been read
		if len(head) == 0 {
			res.Body = http.NoBody
		}
	}
	return head, whole
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
