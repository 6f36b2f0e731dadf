package llm

import (
	"bytes"
	"sync"

	"github.com/headgate/headgate/adapters/llm/internal/jsonscan"
	"github.com/headgate/headgate/adapters/llm/internal/sse"
)

// Observed is what a response said about its use, as far as it was read.
type Observed struct {
	// Usage is the numbers that the response stated. Without Known they are what it stated first or
	// in passing, or zero.
	Usage Usage
	// Known says that the response stated its final usage.
	Known bool
	// InputKnown says that it stated the tokens of its input, as Anthropic does at the beginning.
	InputKnown bool
	// Events is how many events had text. It is 1 for a document with text.
	Events int64
	// TextBytes is how many bytes of text the model wrote: answers, reasoning and arguments of tools.
	TextBytes int64
	// Complete says that the response came to its end: the last event of its format, or the end of
	// the document.
	Complete bool
	// Failed says that the response reported an error.
	Failed bool
	// Broken says that a part of the response was no valid JSON, or no valid gzip.
	Broken bool
}

// observer reads a response and keeps what it says. Another goroutine may ask for that.
type observer struct {
	format Format
	stream bool

	mu     sync.Mutex
	json   jsonscan.Scanner
	split  sse.Splitter
	found  Observed
	counts counts
	next   int64 // the sequence_number that the next event would have
	event  event
	lone   bool // the last event that ended held only the usage of a chat
}

// event is what one event, or the document, has said so far.
type event struct {
	text    int64
	size    int64   // bytes of data
	head    [8]byte // the beginning of the data
	name    [32]byte
	named   int // bytes of the name; larger than name for a longer one
	kind    eventKind
	counts  counts
	usage   bool // it has a usage object
	part    bool // that is of message_start or in response
	choices bool // it has an array of choices
	choice  bool // that has an element
	finish  bool // a choice has ended
	fault   bool // it has an error
}

// eventKind is what the type of an event means here.
type eventKind uint8

const (
	otherEvent  eventKind = iota
	finalEvent            // response.completed or response.incomplete
	failedEvent           // response.failed
	stopEvent             // message_stop
	faultEvent            // error
	audioEvent            // audio is not text
)

func kindOf(name []byte) eventKind {
	switch string(name) {
	case "response.completed", "response.incomplete":
		return finalEvent
	case "response.failed":
		return failedEvent
	case "message_stop":
		return stopEvent
	case "error":
		return faultEvent
	case "response.audio.delta", "response.output_audio.delta":
		return audioEvent
	}
	return otherEvent
}

func (o *observer) init(f Format, stream bool) {
	o.format, o.stream = f, stream
	o.json, o.split = jsonscan.New(responsePaths[f], o), sse.New(o)
}

// read reads the next piece of the response.
func (o *observer) read(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stream {
		o.document(p)
		return
	}
	for len(p) > 0 {
		n, _ := o.split.Next(p)
		p = p[n:]
	}
}

// readEvent reads a stream to the end of an event or of p. It returns how many bytes that are,
// whether an event has ended, and whether that held only the usage.
func (o *observer) readEvent(p []byte) (n int, ended, lone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, ended = o.split.Next(p)
	return n, ended, ended && o.lone
}

// document reads a piece of a response that is one JSON document.
func (o *observer) document(p []byte) {
	o.json.Scan(p)
	o.found.Broken = o.found.Broken || o.json.Broken()
}

// close ends the response, wherever it stands.
func (o *observer) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lone = false
	switch {
	case o.stream:
		o.split.Close()
	case !o.json.Finish():
		o.commit(false)
		o.event = event{}
		o.json.Reset()
	}
}

// corrupt says that the response could not be decoded. What it stated before does not count, and
// neither does an event that has begun.
func (o *observer) corrupt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commit(false)
	o.event = event{}
	o.json.Reset()
	o.found.Broken, o.found.Known = true, false
}

func (o *observer) EventName(p []byte) {
	e := &o.event
	if e.named < len(e.name) {
		copy(e.name[e.named:], p)
	}
	e.named = min(e.named+len(p), len(e.name)+1)
}

func (o *observer) EventData(p []byte) {
	e := &o.event
	if e.size < int64(len(e.head)) {
		copy(e.head[e.size:], p)
	}
	e.size += int64(len(p))
	o.json.Scan(p)
}

func (o *observer) EventEnd(filled bool) {
	o.lone = false
	if filled {
		o.endEvent()
	}
	o.event = event{}
	o.json.Reset()
}

func (o *observer) endEvent() {
	e := &o.event
	head := bytes.TrimSpace(e.head[:min(e.size, int64(len(e.head)))])
	switch {
	case e.size <= int64(len(e.head)) && len(head) == 0: // keeps the connection alive
		return
	case e.size <= int64(len(e.head)) && string(head) == "[DONE]":
		o.found.Complete = true
		o.found.Known = o.found.Known || o.format == OpenAIChat && o.counts.whole()
		return
	}
	valid := o.json.Finish()
	o.found.Broken = o.found.Broken || o.json.Broken()
	if e.kind == otherEvent && e.named <= len(e.name) {
		e.kind = kindOf(e.name[:e.named])
	}
	o.commit(valid)
	o.lone = valid && o.format == OpenAIChat && e.usage && e.choices && !e.choice && !e.fault
}

// commit adds what the event said. The usage of one that is not valid does not count.
func (o *observer) commit(valid bool) {
	e, f := &o.event, &o.found
	e.text += o.json.Within(tellText)
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
	if o.stream {
		f.Complete = f.Complete ||
			e.kind == finalEvent || e.kind == failedEvent || e.kind == stopEvent
	}
	if e.usage {
		o.commitUsage()
	}
}

// commitUsage takes over the event's usage. OpenAI states all of it each time, and Anthropic what
// has changed.
func (o *observer) commitUsage() {
	e, f := &o.event, &o.found
	final := false
	switch o.format {
	case OpenAIChat:
		o.counts = counts{}
		final = !o.stream || !e.choice || e.finish
	case OpenAIResponses:
		o.counts = counts{}
		final = !e.part || e.kind == finalEvent || e.kind == failedEvent
	case AnthropicMessages:
		final = f.Known || !e.part && e.counts.hasOutput
	}
	o.counts.merge(&e.counts)
	f.Usage = o.counts.usage(o.format)
	f.InputKnown = o.counts.hasInput
	f.Known = final && o.counts.whole()
}

// result returns what has been read so far, an unfinished event's text included.
func (o *observer) result() Observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.found
	text := o.event.text + o.json.Within(tellText)
	if text > 0 && o.event.kind != audioEvent {
		f.Events++
		f.TextBytes += text
	}
	return f
}

// between reports whether the stream stands between two events.
func (o *observer) between() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.split.Between()
}
