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

// sniff reads the blank bytes at the beginning of a response. It returns their number. If another
// byte follows, it decides the framing.
func (r *reader) sniff(p []byte) int {
	n := 0
	for n < len(p) && blanks[p[n]] {
		n++
	}
	r.advance(p[:n])
	if n == len(p) {
		return n
	}
	switch c := p[n]; {
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
	return n
}

// advance has the splitter read blank bytes, which may belong to its first event.
func (r *reader) advance(p []byte) {
	for len(p) > 0 {
		n, _ := r.split.Next(p)
		p = p[n:]
	}
}

// readLines reads documents that each stand on a line, or on several if there is only one.
func (r *reader) readLines(p []byte) {
	for len(p) > 0 {
		n := restOfLine(p)
		r.json.Scan(p[:n])
		r.found.Broken = r.found.Broken || r.json.Broken()
		if r.json.Broken() && p[n-1] == '\n' {
			r.abandon()
		}
		r.inLine = p[n-1] != '\n' || !r.json.Idle()
		p = p[n:]
	}
}

// restOfLine returns the number of bytes of p that belong to the line that has begun.
func restOfLine(p []byte) int {
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		return i + 1
	}
	return len(p)
}
