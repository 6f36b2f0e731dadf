// Package sse cuts a stream of server-sent events into events.
package sse

// lineState says which part of a line a Splitter reads.
type lineState uint8

const (
	atLine  lineState = iota // before its first byte
	inField                  // in the name of its field
	afterColon
	inData
	inName
	inOther // in a comment or in the value of a field that does not matter
)

// Sink receives what a Splitter finds.
type Sink interface {
	// EventData gets the next piece of the event's data. A LF separates two data lines.
	EventData(p []byte)
	// EventName gets the next piece of the event's name.
	EventName(p []byte)
	// EventEnd is called when the event ends. filled says that it had a data line.
	EventEnd(filled bool)
}

// Splitter cuts an event stream without a byte order mark into events, by the rules of the HTML
// standard, except that a CR ends no line and is no part of one: no server ends lines by CR alone.
// The stream arrives in pieces of any length. A Splitter keeps none of them.
type Splitter struct {
	sink   Sink
	state  lineState
	named  bool // the event has a name
	filled bool // the event has a data line
	field  [len("event")]byte
	length int // of the field's name so far
}

// New returns a Splitter of one stream.
func New(sink Sink) Splitter { return Splitter{sink: sink} }

// Next reads p to the end of an event, including its blank line, or to the end of p. It returns the
// number of bytes read, and whether the event has ended.
func (s *Splitter) Next(p []byte) (n int, ended bool) {
	for n < len(p) {
		switch p[n] {
		case '\r':
			n++
		case '\n':
			n++
			if s.endLine() {
				return n, true
			}
		default:
			n = s.line(p, n)
		}
	}
	return n, false
}

// line reads p from i until the line or p ends or the state of the line changes.
func (s *Splitter) line(p []byte, i int) int {
	c := p[i]
	switch s.state {
	case atLine, inField:
		if c != ':' {
			if s.state == atLine {
				s.state, s.length = inField, 0
			}
			if s.length < len(s.field) {
				s.field[s.length] = c
			}
			s.length = min(s.length+1, len(s.field)+1)
			return i + 1
		}
		if s.state == atLine {
			s.state = inOther
		} else {
			s.state = afterColon
		}
		return i + 1
	case afterColon:
		s.enter()
		if c == ' ' {
			return i + 1
		}
	}
	j := i
	for j < len(p) && p[j] != '\n' && p[j] != '\r' {
		j++
	}
	switch s.state {
	case inData:
		s.sink.EventData(p[i:j])
	case inName:
		s.sink.EventName(p[i:j])
	}
	return j
}

// enter begins the value of the field.
func (s *Splitter) enter() {
	s.state = inOther
	if s.length > len(s.field) {
		return
	}
	switch string(s.field[:s.length]) {
	case "data":
		s.state = inData
		if s.filled {
			s.sink.EventData(lineFeed)
		}
		s.filled = true
	case "event":
		s.state = inName
		s.named = true
	}
}

var lineFeed = []byte("\n")

// endLine ends the line, and the event if the line is blank.
func (s *Splitter) endLine() (ended bool) {
	switch s.state {
	case inField, afterColon: // a field without a value
		s.enter()
	case atLine:
		s.endEvent()
		return true
	}
	s.state = atLine
	return false
}

func (s *Splitter) endEvent() {
	s.sink.EventEnd(s.filled)
	s.filled, s.named = false, false
}

// Close ends the stream. It ends an event without its blank line too: a browser drops it, but most
// clients read it.
func (s *Splitter) Close() {
	if s.state == inField || s.state == afterColon {
		s.enter()
	}
	if s.filled {
		s.endEvent()
	}
	s.state = atLine
}

// Between reports whether another event could begin here.
func (s *Splitter) Between() bool {
	return s.state == atLine && !s.filled && !s.named
}
