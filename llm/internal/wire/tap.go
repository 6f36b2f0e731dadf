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
	lone bool   // the last event was hidden
}

// NewTap returns a Tap of a response with some headers. With hide it leaves out a chat's chunk that
// holds only the usage, for a client that did not ask for it. It cannot hide the chunk of an
// encoded response, so request an unencoded one.
func NewTap(f *Format, h http.Header, hide bool) *Tap {
	t := &Tap{coding: codingOf(h.Get("Content-Encoding"))}
	t.reader.init(f, h)
	t.hide = hide && f.table.AsksUsage && t.coding == codingNone
	return t
}

// Draws names the model of a tool that draws images, which the response does not name.
func (t *Tap) Draws(model string) { t.reader.draws = model }

// Streams reports whether the response says that it is a stream.
func (t *Tap) Streams() bool { return t.reader.labelled }

// Hides reports whether the Tap may leave out a part of the response.
func (t *Tap) Hides() bool { return t.hide }

// Encoded reports whether the response has a Content-Encoding.
func (t *Tap) Encoded() bool { return t.coding != codingNone }

// Unread reports whether the response has an encoding that the Tap cannot decode.
func (t *Tap) Unread() bool { return t.coding == codingOther }

// Write passes p on through out and reads it. Without hiding it passes p on first, unchanged. It
// reads p even if out fails, and returns the error of out. A nil out drops everything.
func (t *Tap) Write(p []byte, out func([]byte) error) error {
	if t.closed {
		return pass(p, nil, out)
	}
	var err error
	if t.hide {
		var n int
		if n, err = t.begin(p, out); t.hide {
			return t.writeEvents(p[n:], err, out)
		}
		p = p[n:]
	}
	err = pass(p, err, out)
	switch t.coding {
	case codingNone:
		t.reader.read(p)
	case codingGzip:
		if t.inflater == nil {
			t.inflater = newInflater(&t.reader)
		}
		t.inflater.write(p)
	}
	return err
}

// begin passes on the blank bytes before the response, and finds out whether it has events that can
// be hidden. It returns the number of these bytes.
func (t *Tap) begin(p []byte, out func([]byte) error) (n int, err error) {
	r := &t.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.framing == unknownFraming {
		n = r.sniff(p)
		err = pass(p[:n], nil, out)
	}
	t.hide = r.framing == eventFraming || r.framing == unknownFraming
	return n, err
}

// writeEvents passes on the events that are no usage chunk, in as few pieces as it can, unless out
// has failed before.
func (t *Tap) writeEvents(p []byte, err error, out func([]byte) error) error {
	from, at := 0, 0 // p[from:at] can be passed on; the event that is read has begun at p[at:]
	if t.reader.split.Tail(p) {
		t.reader.readEvent(p[:1])
		if at = 1; t.lone {
			from = 1
		}
	}
	for i := at; i < len(p); {
		n, ended, lone := t.reader.readEvent(p[i:])
		i += n
		if !ended {
			break
		}
		t.lone = lone && !t.long && len(t.held)+i-at <= MaxHeld
		if t.reader.split.Tail(p[i:]) {
			t.reader.readEvent(p[i : i+1])
			i++
		}
		if t.lone {
			err = pass(p[from:at], err, out)
			from = i
		} else {
			err = pass(t.held, err, out)
		}
		t.held, t.long = t.held[:0], false
		at = i
	}
	if t.long = t.long || len(t.held)+len(p)-at > MaxHeld; t.long {
		err = pass(t.held, err, out)
		t.held = t.held[:0]
		return pass(p[from:], err, out)
	}
	t.held = append(t.held, p[at:]...)
	return pass(p[from:at], err, out)
}

// pass calls out unless it has failed before.
func pass(p []byte, err error, out func([]byte) error) error {
	if err != nil || out == nil || len(p) == 0 {
		return err
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
	return pass(held, nil, out)
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

// Rest returns the number of bytes of p that belong to the event that has begun: all of p if the
// event does not end in it.
func (t *Tap) Rest(p []byte) int {
	if t.Encoded() {
		return len(p)
	}
	return t.reader.rest(p)
}

// ErrorEvent returns the event that ends this stream with an error.
func (t *Tap) ErrorEvent(kind, message string) []byte {
	return errorEvent(t.reader.format.table.Errors, kind, message, t.reader.sequence())
}
