package wire

import "bytes"

// event is one event, or the document, as far as it was read.
type event struct {
	size  int64   // bytes of data
	head  [8]byte // the beginning of the data
	name  [32]byte
	named int // bytes of the name, at most one more than fit
	said
}

// said is what a document has said.
type said struct {
	texts   texts
	kind    eventKind
	counts  counts
	items   items
	listed  bool     // the items are all of the response
	queries []string // of searches
	extra   Usage    // of the same model, and not in its usage
	others  []ModelUsage
	usage   bool // it has a usage at the top
	choices bool // it has an array of choices
	choice  bool // that array has an element
	finish  bool // a choice has ended
	fault   bool // it has an error
	refusal bool // the model refused to answer
	done    bool // it says that it is the last one
}

// texts has the bytes of text by its role: tellText, tellThought and tellThoughtAgain.
type texts [3]int64

// eventKind is what the type of an event means here.
type eventKind uint8

const (
	otherEvent  eventKind = iota
	endEvent              // ends the response
	failedEvent           // ends it with an error
	faultEvent            // is an error
	silentEvent           // has no text: sound, for example
	itemEvent             // states an item of the response as it is in the end
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

// onlyUsage reports whether the event is the last chunk of a chat, which holds only the usage. Some
// servers send null in place of its choices, or nothing.
func (e *event) onlyUsage() bool {
	return e.usage && !e.choice && !e.fault && e.texts == texts{} && (e.choices || e.counts.stated != 0)
}

// typeName returns the event's name, or "" if it is long.
func (e *event) typeName() []byte {
	if e.named > len(e.name) {
		return nil
	}
	return e.name[:e.named]
}
