package wire

import "net/http"

// MaxHeld is the number of bytes of an unfinished event that a Tap holds back. A longer event is no
// usage chunk.
const MaxHeld = 64 << 10

// Tap reads a response while it passes it on. Write the whole body through it and close it: an
// encoded response has a goroutine until then. One goroutine at a time calls its methods. Response
// and ErrorEvent are safe for concurrent use.
type Tap struct {
	reader   reader
	coding   coding
	hide     bool
	closed   bool
	inflater *inflater

	held []byte // of the event that has begun, not passed on yet
	long bool   // that event is longer than MaxHeld and is passed on
}

// NewTap returns a Tap of the response to a request, with some headers. With hide it leaves out a
// chat's chunk that holds only the usage, for a client that did not ask for it. It cannot hide
// the chunk of an encoded response, so request an unencoded one.
func NewTap(q *Request, h http.Header, hide bool) *Tap {
	t := &Tap{coding: codingOf(h.Get("Content-Encoding"))}
	t.reader.init(q, h)
	t.hide = hide && q.Format.table.AsksUsage && t.coding == codingNone
	return t
}

// Streams reports whether the response says that it is a stream.
func (t *Tap) Streams() bool { return t.reader.labelled }

// Hides reports whether the Tap may leave out a part of the response.
func (t *Tap) Hides() bool { return t.hide }

// Encoded reports whether the response has a Content-Encoding.
func (t *Tap) Encoded() bool { return t.coding != codingNone }

// Unread reports whether the response has an encoding that the Tap cannot decode.
func (t *Tap) Unread() bool { return t.coding == codingOther }

// Write passes p on through out and reads it. Without hiding it passes p on first, unchanged. It
// reads p even if out fails, and returns the error of out. A nil out drops everything. With one it
// writes no more than the rest of the event that has begun. It returns the number of bytes.
func (t *Tap) Write(p []byte, one bool, out func([]byte) error) (n int, err error) {
	switch {
	case t.closed || t.coding == codingOther:
		return len(p), pass(p, out)
	case t.hide:
		return t.writeEvents(p, one, out)
	case t.coding == codingNone && one:
		n = t.reader.read(p, one)
		return n, pass(p[:n], out)
	}
	err = pass(p, out)
	if t.coding == codingNone {
		t.reader.read(p, one)
		return len(p), err
	}
	if t.inflater == nil {
		t.inflater = newInflater(&t.reader)
	}
	t.inflater.write(p)
	return len(p), err
}

// writeEvents passes on the events that are no usage chunk, and what are no events.
func (t *Tap) writeEvents(p []byte, one bool, out func([]byte) error) (n int, err error) {
	r, ready := &t.reader, 0 // bytes of t.held that can be passed on
	for ended := false; n < len(p) && !(one && ended); {
		var read int
		read, ended = r.readEvent(p[n:])
		t.held = append(t.held, p[n:n+read]...)
		n += read
		if t.long = t.long || len(t.held)-ready > MaxHeld; t.long {
			r.lone = false
		}
		switch {
		case ended && r.lone:
			t.held = t.held[:ready]
		case ended || t.long || r.framing != eventFraming:
			ready = len(t.held)
		}
		t.long = t.long && !ended
	}
	t.hide = r.framing == eventFraming || r.framing == unknownFraming
	err = pass(t.held[:ready], out)
	if t.held = append(t.held[:0], t.held[ready:]...); len(t.held) == 0 && cap(t.held) > smallHeld {
		t.held = nil
	}
	return n, err
}

// smallHeld is the memory that a Tap keeps for the events to come.
const smallHeld = 4 << 10

func pass(p []byte, out func([]byte) error) error {
	if out == nil || len(p) == 0 {
		return nil
	}
	return out(p)
}

// Close ends the response and passes on what is held back. A nil out drops it. whole says that the
// response was not broken off. Close waits for the Tap's goroutine. Later calls do nothing, and
// later writes are passed on unread.
func (t *Tap) Close(whole bool, out func([]byte) error) error {
	if t.closed {
		return nil
	}
	t.closed = true
	if t.inflater != nil {
		t.inflater.close()
	}
	if t.coding != codingOther {
		t.reader.close(whole)
	}
	held := t.held
	t.held = nil
	if len(held) > 0 && t.reader.lone {
		return nil
	}
	return pass(held, out)
}

// Response returns what the response has said so far.
func (t *Tap) Response() Response { return t.reader.response() }

// Between reports whether what was passed on ends between two events. Only there may ErrorEvent
// follow.
func (t *Tap) Between() bool {
	if t.Encoded() {
		return false
	}
	return len(t.held) > 0 || t.reader.between()
}

// ErrorEvent returns the event that ends this stream with an error.
func (t *Tap) ErrorEvent(kind, message string) []byte {
	return errorEvent(t.reader.format.table.Errors, kind, message, t.reader.sequence())
}
