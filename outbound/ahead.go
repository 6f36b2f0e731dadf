package outbound

import (
	"bytes"
	"io"
	"net/http"
	"time"
)

// bodyPatience bounds how long the body of a refusal is read, so that one that hangs holds up
// neither the response nor its cooldown.
const bodyPatience = 250 * time.Millisecond

// ahead is the body of a response whose first bytes are read in the background.
type ahead struct {
	io.ReadCloser
	head bytes.Buffer
	err  error         // behind the head, or nil if there is more
	done chan struct{} // closed when the head has come
}

// readAhead reads the first bytes of the body of a response. It gives the response a body as if nothing
// had been read, and returns what was read, or nil if that takes longer than bodyPatience, and whether
// that is all of it.
func readAhead(res *http.Response, most int64) (head []byte, whole bool) {
	a := &ahead{ReadCloser: res.Body, done: make(chan struct{})}
	res.Body = a
	go func() { // until the body is closed
		defer close(a.done)
		_, a.err = io.CopyN(&a.head, a.ReadCloser, most)
	}()
	select {
	case <-a.done:
		return a.head.Bytes(), a.err == io.EOF
	case <-time.After(bodyPatience):
		return nil, false
	}
}

// Read reads what was read ahead, and then the rest of the body.
func (a *ahead) Read(p []byte) (int, error) {
	<-a.done
	switch {
	case a.head.Len() > 0:
		return a.head.Read(p)
	case a.err != nil:
		return 0, a.err
	}
	return a.ReadCloser.Read(p)
}
