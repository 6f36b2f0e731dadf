package llm

// lineState is where in a line of an event stream a splitter stands.
type lineState uint8

const (
	atLine  lineState = iota // at its beginning
	inField                  // in the name of its field
	afterColon
	inData
	inName
	inOther // in a comment or in the value of a field that does not matter
)

// eventSink is told what a splitter finds.
type eventSink interface {
	// eventData gets the next piece of the event's data. A LF stands between two data lines.
	eventData(p []byte)
	// eventName gets the next piece of the event's name.
	eventName(p []byte)
	// eventEnd is called when the event ends. filled says that it had a data line.
	eventEnd(filled bool)
}

// splitter cuts a stream of server-sent events into events by the rules that the HTML standard has
// for event streams. The stream arrives in pieces of any length, of which the splitter keeps none.
type splitter struct {
	sink   eventSink
	state  lineState
	mark   uint8 // bytes of the byte order mark that have come; all of them if none can follow
	cr     bool  // the last byte is a CR: a LF behind it belongs to the same line end
	crlf   bool  // the stream has ended a line by CR and LF
	blank  bool  // the last line that ended was blank
	named  bool  // the event has a name
	filled bool  // the event has a data line
	field  [len("event")]byte
	length int // of the field's name so far
}

const byteOrderMark = "\ufeff"

// next reads p to the end of an event, blank line included, or to the end of p. It returns how many
// bytes that are, and whether the event has ended.
func (s *splitter) next(p []byte) (n int, ended bool) {
	for i := 0; i < len(p); {
		c := p[i]
		if s.cr && c == '\n' {
			s.cr, s.crlf = false, true
			i++
			continue
		}
		s.cr = false
		if int(s.mark) < len(byteOrderMark) {
			if c == byteOrderMark[s.mark] {
				s.mark++
				i++
				continue
			}
			if s.mark > 0 {
				s.state, s.length = inField, len(s.field)+1 // a part of the mark is a field's name
			}
			s.mark = uint8(len(byteOrderMark))
		}
		if c == '\n' || c == '\r' {
			s.cr = c == '\r'
			i++
			if s.endLine() {
				return i, true
			}
			continue
		}
		i = s.line(p, i)
	}
	return len(p), false
}

// line reads p from i to the end of the line or of p, or to where the line's state changes.
func (s *splitter) line(p []byte, i int) int {
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
		s.sink.eventData(p[i:j])
	case inName:
		s.sink.eventName(p[i:j])
	}
	return j
}

// enter begins the value of the field.
func (s *splitter) enter() {
	s.state = inOther
	if s.length > len(s.field) {
		return
	}
	switch string(s.field[:s.length]) {
	case "data":
		s.state = inData
		if s.filled {
			s.sink.eventData(lineFeed)
		}
		s.filled = true
	case "event":
		s.state = inName
		s.named = true
	}
}

var lineFeed = []byte("\n")

// endLine ends the line, and the event if the line is blank.
func (s *splitter) endLine() (ended bool) {
	s.blank = s.state == atLine
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

func (s *splitter) endEvent() {
	s.sink.eventEnd(s.filled)
	s.filled, s.named = false, false
}

// close ends the stream. An event without its blank line ends too: a browser would drop it, but
// most clients read it.
func (s *splitter) close() {
	if s.state == inField || s.state == afterColon {
		s.enter()
	}
	if s.filled {
		s.endEvent()
	}
	s.state = atLine
}

// tail reports whether p begins with the LF of the CR LF that ended the last event.
func (s *splitter) tail(p []byte) bool {
	return s.cr && s.blank && len(p) > 0 && p[0] == '\n'
}

// between reports whether a further event could begin here.
func (s *splitter) between() bool {
	inMark := s.mark > 0 && int(s.mark) < len(byteOrderMark)
	return s.state == atLine && !s.filled && !s.named && !inMark && !(s.cr && s.crlf)
}
