package wire

import "bytes"

// event is what one event, or the document, has said so far.
type event struct {
	text    int64
	size    int64   // bytes of data
	head    [8]byte // the beginning of the data
	name    [32]byte
	named   int // bytes of the name, at most one more than fit
	kind    eventKind
	counts  counts
	usage   bool // it has a usage object
	part    bool // that object is of message_start or in response
	choices bool // it has an array of choices
	choice  bool // that array has an element
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

// addName appends a piece of the event's name.
func (e *event) addName(p []byte) {
	if e.named < len(e.name) {
		copy(e.name[e.named:], p)
	}
	e.named = min(e.named+len(p), len(e.name)+1)
}

// addData appends a piece of the event's data.
func (e *event) addData(p []byte) {
	if e.size < int64(len(e.head)) {
		copy(e.head[e.size:], p)
	}
	e.size += int64(len(p))
}

// shortData returns the data without spaces around it, if head holds all of it.
func (e *event) shortData() (data []byte, short bool) {
	if e.size > int64(len(e.head)) {
		return nil, false
	}
	return bytes.TrimSpace(e.head[:e.size]), true
}

// onlyUsage reports whether the event is the last chunk of a chat, which holds only the usage.
func (e *event) onlyUsage() bool { return e.usage && e.choices && !e.choice && !e.fault }

// kindOfName returns the kind for the event's name.
func (e *event) kindOfName() eventKind {
	if e.named > len(e.name) {
		return otherEvent
	}
	return kindOf(e.name[:e.named])
}

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
