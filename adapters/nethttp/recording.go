package nethttp

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
)

// recording is the answer of a handler to a request with an id, while it is written. A nil recording
// records nothing.
type recording struct {
	answer
	keeper *keeper
	id     core.Key
	told   bool // the adapter tells of the response
	broken bool // the handler could not finish it
}

// lose gives the answer up.
func (t *recording) lose(why loss) {
	if t != nil && t.lost == "" {
		t.lost, t.header, t.body = why, nil, nil
	}
}

// begin records the headers as they stand when the first one with a final status is written.
func (t *recording) begin(h http.Header) {
	if t == nil || t.lost != "" || t.header != nil {
		return
	}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		t.lose(lostStream)
		return
	}
	t.header = make(http.Header)
	for _, name := range t.keeper.headers {
		if values := h[name]; len(values) > 0 {
			t.header[name] = slices.Clone(values)
		}
	}
}

const contentLength = "Content-Length"

// write records bytes of the body, given the error with which they were sent, and reports whether it
// has them all. The bytes that the client does not get are those that a retry asks for.
func (t *recording) write(h http.Header, p []byte, err error) bool {
	if t == nil {
		return false
	}
	t.told = true
	if p != nil {
		t.begin(h)
	} else if err != nil {
		t.broken = true
	}
	if t.lost != "" || errors.Is(err, http.ErrBodyNotAllowed) ||
		errors.Is(err, http.ErrContentLength) || errors.Is(err, http.ErrHijacked) {
		return false
	}
	if len(p) > t.keeper.most-len(t.body) {
		t.lose(lostTooLarge)
		return false
	}
	t.body = append(t.body, p...)
	return true
}

// room returns how many bytes may still be written before none is recorded any more: those that may be
// kept, and the one that is too many.
func (t *recording) room() int64 {
	if t == nil || t.lost != "" {
		return 0
	}
	return int64(t.keeper.most-len(t.body)) + 1
}

// end returns the answer as it is kept, or nothing if none is.
func (t *recording) end(h http.Header, r *http.Request, status int) []byte {
	if t == nil {
		return nil
	}
	t.begin(h)
	t.status = status
	stated := t.header.Get(contentLength)
	switch {
	case !t.told:
		t.lose(lostUnknown)
	case t.print == tooLong:
		t.lose(lostTooLarge)
	case status == http.StatusSwitchingProtocols:
		t.lose(lostStream)
	case status >= http.StatusInternalServerError:
		t.lose(lostError)
	case t.broken && status < http.StatusBadRequest:
		t.lose(lostIncomplete) // the handler may have done its work, so the id stays handled
	case r.Method != http.MethodHead && status != http.StatusNotModified &&
		stated != "" && stated != strconv.Itoa(len(t.body)):
		t.lose(lostIncomplete)
	}
	return t.keeper.seal(&t.answer, t.id)
}

// recording returns that of the response, or nil.
func (x *Exchange) recording() *recording {
	if x.attempt == nil {
		return nil
	}
	return x.attempt.recording
}

// Record gives bytes of the response's body, and the error with which they were written, to a Replay
// that keeps the answer. If it returns true, the handler is to be told that all were written: its
// client has left, and a retry gets the answer that is now made.
//
// Writer does that. It is for an adapter whose framework has a ResponseWriter type of its own. Such
// an adapter calls Record with nothing before the handler, too, and RecordStream for a response that is
// flushed or hijacked. Of an adapter that does neither, no answer is kept. With no bytes and an error, which
// a handler returns that has begun to respond, an answer below 400 is not kept either.
func (x *Exchange) Record(p []byte, err error) (all bool) {
	return x.recording().write(x.headers, p, err)
}

// RecordStream says that the response is a stream, which no Replay keeps.
func (x *Exchange) RecordStream() { x.recording().lose(lostStream) }

// copyRecorded copies from src what is recorded, and reports whether src has ended.
func (w writer) copyRecorded(src io.Reader, room int64) (n int64, ended bool, err error) {
	n, err = io.CopyN(struct{ io.Writer }{w}, src, room)
	if errors.Is(err, io.EOF) {
		return n, true, nil
	}
	return n, err != nil, err
}
