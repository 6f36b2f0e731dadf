package nethttp

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// records reports whether the answer is recorded. That of a request without an id is not.
func (t *attempt) records() bool { return t != nil && t.replay.keeper != nil && t.lost == "" }

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
	case r.Method != http.MethodHead && t.status != http.StatusNotModified &&
		stated != "" && stated != strconv.Itoa(len(t.body)):
		t.lose(lostIncomplete)
	}
}

// Break says that the handler has returned an error although it has begun to respond. Of such a response,
// if its status is below 400, a Replay keeps no answer. It is for adapters of frameworks whose handlers
// return errors. The handler may have done its work, so the id stays handled.
func (x *Exchange) Break() {
	if x.sent < http.StatusBadRequest {
		x.attempt.lose(lostIncomplete)
	}
}

// Bypassed says that a response with this status has begun. If nothing was sent by the ResponseWriter of
// Writer, a Replay keeps no answer. It is for adapters of frameworks whose handlers can go around that
// writer, before FinishWritten.
func (x *Exchange) Bypassed(status int) {
	if x.sent == 0 {
		x.sent = int32(status)
		x.attempt.lose(lostUnknown)
	}
}
