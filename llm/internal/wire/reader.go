package wire

import (
	"mime"
	"net/http"
	"sync"

	"github.com/headgate/headgate/llm/internal/jsonscan"
	"github.com/headgate/headgate/llm/internal/sse"
)

// reader reads a response and keeps what it says. Another goroutine may call response.
type reader struct {
	format   *Format
	labelled bool   // as a stream
	draws    string // the model of a tool that draws

	mu       sync.Mutex
	framing  framing
	json     jsonscan.Scanner
	split    sse.Splitter
	frames   frames
	inLine   bool // a line has begun
	evented  bool // an event with data has ended
	found    Response
	counts   counts
	bill     bill
	next     int64 // the sequence_number that the next event would have
	event    event
	detail   detail
	keyed    [48]byte
	key      []byte // the beginning of the last key, in keyed
	lone     bool   // the last event that ended held only the usage of a chat
	finished bool   // an answer has ended
	refused  bool   // the model refused to answer
	over     bool   // it has ended without a marker

	corrupted bool  // it could not be decoded
	price     Money // that a header states of the response, if it is a document
}

func (r *reader) init(q *Request, h http.Header) {
	f := q.Format
	r.format, r.draws = f, q.ImageModel                       // which the response does not name
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type")) // empty if it is invalid
	switch media {
	case "text/event-stream", "application/x-ndjson", "application/vnd.amazon.eventstream":
		r.labelled = true
	}
	r.json, r.split = jsonscan.New(f.response, r), sse.New(r)
	for name, m := range f.headers {
		if value := h.Get(name); value != "" {
			at := node{Role: m.role, Name: m.name}
			r.number([]byte(value), &at)
		}
	}
	r.counts.merge(&r.event.counts)
	r.price = Money{Known: r.bill.costed, Pico: r.bill.cost}
	r.event, r.bill = event{}, bill{}
}

// read reads the next piece of the response, or to the end of one event in it. It returns the
// number of bytes.
func (r *reader) read(p []byte, one bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ended := false; n < len(p) && !(one && ended); {
		var read int
		read, ended = r.part(p[n:])
		n += read
	}
	return n
}

// readEvent reads to the end of an event or of p, or less. It reports whether an event has ended.
func (r *reader) readEvent(p []byte) (n int, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.part(p)
}

func (r *reader) part(p []byte) (n int, ended bool) {
	if r.framing == unknownFraming {
		if n = r.sniff(p); n > 0 {
			return n, false
		}
	}
	switch r.framing {
	case eventFraming:
		return r.split.Next(p)
	case lineFraming:
		return r.readLine(p)
	case binaryFraming:
		return r.readFrame(p)
	}
	r.json.Scan(p)
	r.found.Broken = r.found.Broken || r.json.Broken()
	return len(p), false
}

// close ends the response. whole says that nothing is known to be missing.
func (r *reader) close(whole bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lone = false
	switch r.framing {
	case unknownFraming:
	case documentFraming:
		if !r.json.Finish() {
			r.abandon()
		}
		return
	case lineFraming:
		r.abandon()
	case eventFraming:
		r.split.Close()
		// A text that begins with the letter of a field is no stream.
		r.found.Broken = r.found.Broken || whole && !r.labelled && !r.evented
	}
	if whole && !r.found.Complete {
		r.found.Complete, r.over = r.finished, true
	}
}

// abandon drops the event that has begun, except its text.
func (r *reader) abandon() {
	r.commit(false)
	r.forget()
}

// forget makes room for another event.
func (r *reader) forget() {
	r.event, r.detail = event{}, detail{}
	r.json.Reset()
}

// corrupt notes that the response could not be decoded. Its usage so far does not count, and
// neither does an event that has begun.
func (r *reader) corrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandon()
	r.found.Broken, r.corrupted = true, true
}

// EventName implements sse.Sink.
func (r *reader) EventName(p []byte) { r.event.addName(p) }

// EventData implements sse.Sink.
func (r *reader) EventData(p []byte) {
	r.event.addData(p)
	r.json.Scan(p)
}

// EventEnd implements sse.Sink.
func (r *reader) EventEnd(filled bool) {
	r.lone = false
	if filled {
		r.evented = true
		r.endEvent()
	}
	r.forget()
}

func (r *reader) endEvent() {
	e := &r.event
	switch data, short := e.shortData(); {
	case short && len(data) == 0: // keeps the connection alive
		return
	case short && string(data) == "[DONE]":
		r.found.Complete = true
		return
	}
	valid := r.json.Finish()
	r.found.Broken = r.found.Broken || r.json.Broken()
	if e.kind == otherEvent {
		e.kind = r.format.table.Events[string(e.typeName())]
	}
	r.lone = valid && r.format.table.AsksUsage && e.onlyUsage()
	r.commit(valid)
}

// between reports whether another event could begin here.
func (r *reader) between() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch r.framing {
	case eventFraming:
		return r.split.Between()
	case lineFraming:
		return !r.inLine
	case binaryFraming:
		return r.frames.between()
	case documentFraming:
		return false
	}
	return r.labelled && r.split.Between()
}

// response returns what has been read so far, including the text of an unfinished event.
func (r *reader) response() Response {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.found
	r.addText(&f)
	r.conclude(&f)
	return f
}

// sequence returns the sequence_number of the next event.
func (r *reader) sequence() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}
