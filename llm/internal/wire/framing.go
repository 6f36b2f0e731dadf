package wire

import (
	"bytes"
	"strings"
)

// framing is how the documents of a response follow each other. Its first bytes decide it, since
// labels are wrong often.
type framing uint8

const (
	unknownFraming  framing = iota // nothing but blank bytes has come
	documentFraming                // one JSON document
	eventFraming                   // server-sent events
	lineFraming                    // one JSON document a line
	binaryFraming                  // frames of application/vnd.amazon.eventstream
)

// blanks may stand before any response: line ends keep a connection alive, and a byte order mark
// may stand before an event stream.
var blanks = [256]bool{' ': true, '\t': true, '\r': true, '\n': true, 0xEF: true, 0xBB: true, 0xBF: true}

// sniff reads the blank bytes at the beginning of a response, and returns their number. Without any
// it decides the framing.
func (r *reader) sniff(p []byte) (n int) {
	for n < len(p) && blanks[p[n]] {
		n++
	}
	if n > 0 {
		return n
	}
	switch c := p[0]; {
	case c == '{' || c == '[':
		r.framing = documentFraming
		if r.format.table.Lines {
			r.framing = lineFraming
			r.json.Many()
		}
	case c == 0: // a frame is shorter than 16 MiB
		r.framing = binaryFraming
	case r.labelled || strings.IndexByte(":deir", c) >= 0: // a comment, data, event, id or retry
		r.framing = eventFraming
	default:
		r.framing = documentFraming // which is broken
	}
	return 0
}

// readLine reads to the end of a line. A document stands on one, or on several if it is the only
// one.
func (r *reader) readLine(p []byte) (n int, ended bool) {
	n = bytes.IndexByte(p, '\n') + 1
	line := p
	if n > 0 {
		line = p[:n]
	}
	r.json.Scan(line)
	r.found.Broken = r.found.Broken || r.json.Broken()
	if r.json.Broken() && n > 0 {
		r.abandon()
	}
	r.inLine = n == 0 || !r.json.Idle()
	return len(line), !r.inLine
}
