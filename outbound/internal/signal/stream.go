package signal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// maxTail is the number of bytes at the end of a part in which an exception may begin.
const maxTail = 128

// Events looks for refusals among the events of a stream. Providers write an error in one line, so
// it reads lines, and needs no end of an event: the stream may break off before that.
type Events struct {
	header http.Header
	frames bool   // of application/vnd.amazon.eventstream, and not lines of text/event-stream
	line   []byte // the beginning of a line that has not ended, or the end of the last part
}

// EventsOf returns the Events of a response, or nil if it is no stream of events whose status does
// not tell how it ends.
func EventsOf(status int, h http.Header) *Events {
	kind := h.Get("Content-Type")
	frames := strings.HasPrefix(kind, "application/vnd.amazon.eventstream")
	if status != http.StatusOK || !frames && !strings.HasPrefix(kind, "text/event-stream") {
		return nil
	}
	return &Events{header: h, frames: frames}
}

// Find returns what the first refusal in the next part of a stream tells, and the status of a
// response that would tell that. The Signal is zero if there is none.
func (e *Events) Find(part []byte, now time.Time) (status int, s Signal) {
	for len(part) > 0 && s.Reason == None {
		var told []byte
		if e.frames {
			told, part = e.exception(part)
		} else {
			told, part = e.lineError(part)
		}
		if told != nil {
			status, s = readError(e.header, told, now)
		}
	}
	return status, s
}

// lineError returns the error in the line that ends in the next part of a stream, or nil, and the
// rest of the part.
func (e *Events) lineError(part []byte) (told, rest []byte) {
	line, rest, ended := bytes.Cut(part, []byte("\n"))
	e.line = append(e.line, line[:min(len(line), MaxBody-len(e.line))]...) // a longer one breaks off
	if ended {
		told = errorIn(e.line)
		e.line = e.line[:0]
	}
	return told, rest
}

// errorIn returns the error that a line tells, or nil. Errors deeper in an event are of tools. What
// an event quotes of its request comes behind the error, so a line that breaks off may tell one.
func errorIn(line []byte) []byte {
	event, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok || !bytes.Contains(event, []byte(`"error"`)) { // what a model writes has its quotes escaped
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(event))
	for {
		var value json.RawMessage
		name, _ := d.Token() // where it fails, Decode does too
		switch _, bracket := name.(json.Delim); {
		case bracket:
		case name == "response":
			if members, _ := d.Token(); members == json.Delim('[') { // whose elements are no names
				return nil
			}
		case d.Decode(&value) != nil:
			return nil
		case name == "error" && value[0] == '{':
			return value
		case name == "error" && string(value) != "null", name == "type" && string(value) == `"error"`:
			return event
		}
	}
}

// exceptionType comes before the name of an exception in a frame, with the type of a string. The
// JSON of a frame has no byte like that.
// docs.aws.amazon.com/transcribe/latest/dg/event-stream.html, 2026-11
var exceptionType = []byte(":exception-type\x07")

// exception returns the first exception in the next part of a stream of frames as JSON, or nil, and
// the rest of the part behind it.
func (e *Events) exception(part []byte) (told, rest []byte) {
	e.line = append(e.line, part...)
	_, name, ok := bytes.Cut(e.line, exceptionType)
	if ok && len(name) >= 2 {
		if n := int(name[0])<<8 | int(name[1]); n <= len(name)-2 {
			e.line = e.line[:0]
			return fmt.Appendf(nil, `{"__type":%q}`, name[2:2+n]), name[2+n:]
		}
	}
	e.line = append(e.line[:0], e.line[max(0, len(e.line)-maxTail):]...)
	return nil, nil
}

// readError returns what an error in a stream tells, which began with these headers. They are older
// than the error: only the error counts.
func readError(h http.Header, told []byte, now time.Time) (status int, s Signal) {
	r := response{status: http.StatusOK, header: h, received: now}
	r.readBody(told)
	switch {
	case r.means[loaded]:
		r.status = statusOverloaded
	case r.means[slow], r.means[blocked], r.means[spent]:
		r.status = http.StatusTooManyRequests
	case Refusal(r.code):
		r.status = r.code
		r.readBody(told) // as one of that status
	}
	return r.status, r.refusal(r.wait(http.Header{}))
}
