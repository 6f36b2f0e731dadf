package signal

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// maxLine is the number of bytes of a stream's line that Events looks at, if the line comes in
// pieces.
const maxLine = 16 << 10

// Events looks for the first error among the events of a stream of text/event-stream. The zero
// value is ready.
type Events struct {
	line []byte // the beginning of a line that has not ended
	long bool   // the line is longer than maxLine
}

// IsStream reports whether a response is a stream of events whose status does not tell how it ends.
func IsStream(status int, h http.Header) bool {
	return status == http.StatusOK && strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// Find returns the data of the first event in the next part of a stream that tells an error, or nil.
func (e *Events) Find(part []byte) []byte {
	for len(part) > 0 {
		end := bytes.IndexByte(part, '\n')
		if end < 0 {
			e.keep(part)
			return nil
		}
		line := part[:end]
		part = part[end+1:]
		if len(e.line) > 0 || e.long {
			e.keep(line)
			line = e.line
		}
		data := errorIn(line)
		if e.long {
			data = nil
		}
		if e.long = false; data != nil {
			return data
		}
		e.line = e.line[:0]
	}
	return nil
}

func (e *Events) keep(part []byte) {
	if e.long = e.long || len(e.line)+len(part) > maxLine; e.long {
		e.line = e.line[:0]
		return
	}
	e.line = append(e.line, part...)
}

// errorIn returns the data of a line that tells an error, or nil. Text that a model writes has its
// quotes escaped.
func errorIn(line []byte) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil
	}
	if hasMember(data, `"error"`, "{") || hasMember(data, `"type"`, `"error"`) {
		return data
	}
	return nil
}

// hasMember reports whether a member of that name, whose value begins so, stands somewhere in JSON.
func hasMember(json []byte, name, value string) bool {
	for {
		at := bytes.Index(json, []byte(name))
		if at < 0 {
			return false
		}
		json = json[at+len(name):]
		rest := bytes.TrimLeft(json, " ")
		if rest, ok := bytes.CutPrefix(rest, []byte(":")); ok &&
			bytes.HasPrefix(bytes.TrimLeft(rest, " "), []byte(value)) {
			return true
		}
	}
}

// ReadEvent returns what an error in a stream tells, which began with these headers, and the status
// of a response that would tell that. The headers are older than the error: only the error counts.
func ReadEvent(h http.Header, event []byte, now time.Time) (status int, s Signal) {
	r := response{status: http.StatusOK, header: h, received: now}
	r.readBody(event)
	switch {
	case r.says(loaded):
		r.status = statusOverloaded
	case r.says(slow), r.says(blocked), r.says(spent):
		r.status = http.StatusTooManyRequests
	}
	wait := r.wait(http.Header{})
	s = Signal{Refused: r.refused(wait), Spent: r.spent(r.refused(wait))}
	if s.Refused || s.Spent {
		s.Wait, s.HasWait, s.Model = wait, wait > 0, r.concernsModel()
	}
	return r.status, s
}
