package wire

import (
	"sync"

	"github.com/headgate/headgate/adapters/llm/internal/jsonscan"
	"github.com/headgate/headgate/adapters/llm/internal/sse"
)

// reader reads a response and keeps what it says. Another goroutine may call response.
type reader struct {
	format Format
	stream bool

	mu     sync.Mutex
	json   jsonscan.Scanner
	split  sse.Splitter
	found  Response
	counts counts
	next   int64 // the sequence_number that the next event would have
	event  event
	lone   bool // the last event that ended held only the usage of a chat
}

func (r *reader) init(f Format, stream bool) {
	r.format, r.stream = f, stream
	r.json, r.split = jsonscan.New(responsePaths[f], r), sse.New(r)
}

// read reads the next piece of the response.
func (r *reader) read(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stream {
		r.document(p)
		return
	}
	for len(p) > 0 {
		n, _ := r.split.Next(p)
		p = p[n:]
	}
}

// readEvent reads a stream to the end of an event or of p. It returns the number of bytes read,
// whether an event has ended, and whether that event held only the usage.
func (r *reader) readEvent(p []byte) (n int, ended, lone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, ended = r.split.Next(p)
	return n, ended, ended && r.lone
}

// document reads a piece of a response that is one JSON document.
func (r *reader) document(p []byte) {
	r.json.Scan(p)
	r.found.Broken = r.found.Broken || r.json.Broken()
}

// close ends the response, complete or not.
func (r *reader) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lone = false
	switch {
	case r.stream:
		r.split.Close()
	case !r.json.Finish():
		r.commit(false)
		r.event = event{}
		r.json.Reset()
	}
}

// corrupt notes that the response could not be decoded. Its usage so far does not count, and
// neither does an event that has begun.
func (r *reader) corrupt() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.commit(false)
	r.event = event{}
	r.json.Reset()
	r.found.Broken, r.found.Known = true, false
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
		r.endEvent()
	}
	r.event = event{}
	r.json.Reset()
}

func (r *reader) endEvent() {
	e := &r.event
	switch data, short := e.shortData(); {
	case short && len(data) == 0: // keeps the connection alive
		return
	case short && string(data) == "[DONE]":
		r.found.Complete = true
		r.found.Known = r.found.Known || r.format == OpenAIChat && r.counts.whole()
		return
	}
	valid := r.json.Finish()
	r.found.Broken = r.found.Broken || r.json.Broken()
	if e.kind == otherEvent {
		e.kind = e.kindOfName()
	}
	r.commit(valid)
	r.lone = valid && r.format == OpenAIChat && e.onlyUsage()
}

// commit adds what the event said. The usage of an invalid event does not count.
func (r *reader) commit(valid bool) {
	e, f := &r.event, &r.found
	e.text += r.json.Within(tellText)
	if e.kind == audioEvent {
		e.text = 0
	}
	if e.text > 0 {
		f.Events++
		f.TextBytes += e.text
	}
	e.text = 0
	if !valid {
		return
	}
	f.Failed = f.Failed || e.fault || e.kind == failedEvent || e.kind == faultEvent
	if r.stream {
		f.Complete = f.Complete ||
			e.kind == finalEvent || e.kind == failedEvent || e.kind == stopEvent
	}
	if e.usage {
		r.commitUsage()
	}
}

// commitUsage adopts the event's usage. OpenAI states all numbers each time, and Anthropic those
// that have changed.
func (r *reader) commitUsage() {
	e, f := &r.event, &r.found
	final := false
	switch r.format {
	case OpenAIChat:
		r.counts = counts{}
		final = !r.stream || !e.choice || e.finish
	case OpenAIResponses:
		r.counts = counts{}
		final = !e.part || e.kind == finalEvent || e.kind == failedEvent
	case AnthropicMessages:
		final = f.Known || !e.part && e.counts.stated[outputCount]
	}
	r.counts.merge(&e.counts)
	f.Usage = r.counts.usage(r.format)
	f.InputKnown = r.counts.stated[inputCount]
	f.Known = final && r.counts.whole()
}

// between reports whether another event could begin here.
func (r *reader) between() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.split.Between()
}

// response returns what has been read so far, including the text of an unfinished event.
func (r *reader) response() Response {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.found
	text := r.event.text + r.json.Within(tellText)
	if text > 0 && r.event.kind != audioEvent {
		f.Events++
		f.TextBytes += text
	}
	return f
}

// rest returns the number of bytes of p that belong to the event that has begun.
func (r *reader) rest(p []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.split.Rest(p)
}

// sequence returns the sequence_number of the next event.
func (r *reader) sequence() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next
}
