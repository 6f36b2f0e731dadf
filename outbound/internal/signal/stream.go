package signal

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// maxLine is the number of bytes of a stream's line that Events looks at, if the line comes in
// pieces.
const maxLine = 16 << 10

// maxTail is the number of bytes at the end of a part in which an exception may begin.
const maxTail = 128

// Events looks for the first error among the events of a stream.
type Events struct {
	frames bool   // of application/vnd.amazon.eventstream, and not lines of text/event-stream
	line   []byte // the beginning of a line that has not ended, or the end of the last part
	long   bool   // the line is longer than maxLine
}

// EventsOf returns the Events of a response, or nil if it is no stream of events whose status does
// not tell how it ends.
func EventsOf(status int, h http.Header) *Events {
	kind := h.Get("Content-Type")
	frames := strings.HasPrefix(kind, "application/vnd.amazon.eventstream")
	if status != http.StatusOK || !frames && !strings.HasPrefix(kind, "text/event-stream") {
		return nil
	}
	return &Events{frames: frames}
}

// Find returns the data of the first event in the next part of a stream that tells an error, or nil.
func (e *Events) Find(part []byte) []byte {
	if e.frames {
		return e.exception(part)
	}
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

// exceptionType comes before the name of an exception in a frame, with the type of a string. The
// JSON of a frame has no byte like that.
// docs.aws.amazon.com/transcribe/latest/dg/event-stream.html, 2026-11
var exceptionType = []byte(":exception-type\x07")

// exception returns the exception in the next part of a stream of frames as JSON, or nil.
func (e *Events) exception(part []byte) []byte {
	e.line = append(e.line, part...)
	_, name, ok := bytes.Cut(e.line, exceptionType)
	if ok && len(name) >= 2 {
		if n := int(name[0])<<8 | int(name[1]); n <= len(name)-2 {
			return fmt.Appendf(nil, `{"__type":%q}`, name[2:2+n])
		}
	}
	e.line = append(e.line[:0], e.line[max(0, len(e.line)-maxTail):]...)
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
