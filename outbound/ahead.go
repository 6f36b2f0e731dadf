package outbound

import (
	"bytes"
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
	inner io.ReadCloser
	ended chan struct{} // closed when nothing is read ahead any more

	mu    sync.Mutex
	head  []byte // read ahead, and not yet handed on
	err   error  // behind head
	stops bool
}

// readAhead begins to read the first bytes of a body, about that many at most.
func readAhead(body io.ReadCloser, most int) *ahead {
	a := &ahead{inner: body, ended: make(chan struct{})}
	go a.fill(most)
	return a
}

func (a *ahead) fill(most int) {
	defer close(a.ended)
	defer func() {
		if r := recover(); r != nil { // nobody could recover from it here
			a.add(nil, fmt.Errorf("outbound: the body of the response panics: %v", r))
		}
	}()
	chunk := make([]byte, 4<<10)
	for more := true; more; {
		n, err := a.inner.Read(chunk)
		more = a.add(chunk[:n], err) <= most && err == nil
	}
}

// add adds what was read, and returns how much there is, or more than ever if no more is wanted.
func (a *ahead) add(chunk []byte, err error) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.head, a.err = append(a.head, chunk...), err
	if a.stops {
		return int(^uint(0) >> 1)
	}
	return len(a.head)
}

// within waits for that long at most, and reports whether the reading has ended.
func (a *ahead) within(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a.ended:
		return true
	case <-timer.C:
		return false
	}
}

// handOver stops the reading, gives the response a body as if nothing had been read, and returns
// what was read and whether that is all of it.
func (a *ahead) handOver(res *http.Response) (head []byte, whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stops, head = true, a.head
	if whole = a.err == io.EOF; !whole {
		res.Body = a
		return head, false
	}
	_ = a.inner.Close() // it has been read
	if res.Body = http.NoBody; len(head) > 0 {
		res.Body = io.NopCloser(bytes.NewReader(head))
	}
	return head, true
}

// Read reads what was read ahead, and then the rest of the body.
func (a *ahead) Read(p []byte) (int, error) {
	if n := a.take(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	<-a.ended
	if n := a.take(p); n > 0 {
		return n, nil
	}
	if a.err != nil { // nothing changes it any more
		return 0, a.err
	}
	return a.inner.Read(p)
}

func (a *ahead) take(p []byte) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := copy(p, a.head)
	a.head = a.head[n:]
	return n
}

// Close closes the body, which also ends a reading ahead.
func (a *ahead) Close() error { return a.inner.Close() }
