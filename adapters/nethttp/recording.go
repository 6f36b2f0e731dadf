package nethttp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// recorder is the writer of a request with an id. It records the answer.
type recorder struct{ writer }

// prepare records the headers before the first one with a final status is sent: middleware around the Guard,
// such as one that compresses, changes them then.
func (w recorder) prepare(status int) {
	if w.x.sent == 0 && !informational(status) {
		h := w.x.w.Header()
		w.x.restoreHeaders(h, status)
		w.x.attempt.begin(h)
	}
}

// WriteHeader implements http.ResponseWriter.
func (w recorder) WriteHeader(status int) {
	w.prepare(status)
	w.writer.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w recorder) Write(p []byte) (int, error) {
	w.prepare(http.StatusOK)
	n, err := w.writer.Write(p)
	if w.x.attempt.write(p, err) {
		return len(p), nil
	}
	return n, err
}

// WriteString implements io.StringWriter.
func (w recorder) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// ReadFrom implements io.ReaderFrom. What is no longer recorded takes the short way.
func (w recorder) ReadFrom(src io.Reader) (n int64, err error) {
	if room := w.x.attempt.room(); room > 0 {
		if n, err = io.CopyN(struct{ io.Writer }{w}, src, room); errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	more, err := w.writer.ReadFrom(src)
	return n + more, err
}

// FlushError is for http.ResponseController. What is flushed is a stream.
func (w recorder) FlushError() error {
	err := w.writer.FlushError()
	if w.x.sent != 0 {
		w.x.attempt.lose(lostStream)
	}
	return err
}

// Hijack implements http.Hijacker.
func (w recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.writer.Hijack()
	if err == nil {
		w.x.attempt.lose(lostStream)
	}
	return conn, rw, err
}

// records reports whether the answer is recorded.
func (t *attempt) records() bool { return t.replay.keeper != nil && t.lost == "" }

// lose gives the answer up.
func (t *attempt) lose(why loss) {
	if t.records() {
		t.lost, t.header, t.body = why, nil, nil
	}
}

// begin records the headers as they stand.
func (t *attempt) begin(h http.Header) {
	if !t.records() || t.header != nil {
		return
	}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		t.lose(lostStream)
		return
	}
	t.header = make(http.Header)
	for _, name := range t.replay.keeper.headers {
		if values := h[name]; len(values) > 0 {
			t.header[name] = slices.Clone(values)
		}
	}
}

const contentLength = "Content-Length"

// write records bytes of the body, given the error with which they were sent, and reports whether it
// has them all: then the handler is told that all were written. The bytes that the client does not get
// are those that a retry asks for.
func (t *attempt) write(p []byte, err error) (all bool) {
	if !t.records() || errors.Is(err, http.ErrBodyNotAllowed) ||
		errors.Is(err, http.ErrContentLength) || errors.Is(err, http.ErrHijacked) {
		return false
	}
	if int64(len(p)) >= t.room() {
		t.lose(lostTooLarge)
		return false
	}
	t.body = append(t.body, p...)
	return true
}

// room returns how many bytes may still be written before none is recorded any more: those that may be
// kept, and the one that is too many.
func (t *attempt) room() int64 {
	if !t.records() {
		return 0
	}
	return int64(t.replay.keeper.most-len(t.body)) + 1
}

// finish gives the answer up if it is not one that may be repeated.
func (t *attempt) finish(h http.Header, r *http.Request) {
	t.begin(h)
	stated := t.header.Get(contentLength)
	switch {
	case t.print == tooLong:
		t.lose(lostTooLarge)
	case t.status == http.StatusSwitchingProtocols:
		t.lose(lostStream)
	case t.status >= http.StatusInternalServerError:
		t.lose(lostError)
	case t.broken && t.status < http.StatusBadRequest:
		t.lose(lostIncomplete) // the handler may have done its work, so the id stays handled
	case r.Method != http.MethodHead && t.status != http.StatusNotModified &&
		stated != "" && stated != strconv.Itoa(len(t.body)):
		t.lose(lostIncomplete)
	}
}

// Break says that the handler has returned an error although it has begun to respond. Of such a response,
// if its status is below 400, a Replay keeps no answer. It is for adapters of frameworks whose handlers
// return errors.
func (x *Exchange) Break() {
	if x.attempt != nil {
		x.attempt.broken = true
	}
}
