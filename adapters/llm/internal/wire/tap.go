package wire

import "mime"

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

// NewTap returns a Tap of a response with a Content-Type and a Content-Encoding. With hide it
// leaves out a chat's chunk that holds only the usage, for a client that did not ask for it. It
// cannot hide the chunk of an encoded response, so request an unencoded one.
func NewTap(f Format, contentType, encoding string, hide bool) *Tap {
	t := &Tap{coding: codingOf(encoding)}
	media, _, _ := mime.ParseMediaType(contentType) // empty if it is invalid
	stream := media == "text/event-stream"
	t.reader.init(f, stream)
	t.hide = hide && stream && f == OpenAIChat && t.coding == codingNone
	return t
}

// Streams reports whether the response is a stream of events.
func (t *Tap) Streams() bool { return t.reader.stream }

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
	if t.hide {
		return t.writeEvents(p, out)
	}
	err := pass(p, nil, out)
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

// writeEvents passes on the events that are no usage chunk, in as few pieces as it can.
func (t *Tap) writeEvents(p []byte, out func([]byte) error) error {
	var err error
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

// Close ends the response and passes on what is held back. A nil out drops it. Close waits for the
// Tap's goroutine. Later calls do nothing, and later writes are passed on unread.
func (t *Tap) Close(out func([]byte) error) error {
	if t.closed {
		return nil
	}
	t.closed = true
	if t.inflater != nil {
		t.inflater.close()
	}
	if t.coding != codingOther {
		t.reader.close()
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
	if !t.reader.stream || t.Encoded() {
		return false
	}
	return len(t.held) > 0 || t.reader.between()
}

// Rest returns the number of bytes of p that belong to the event that has begun: all of p if the
// event does not end in it.
func (t *Tap) Rest(p []byte) int {
	if !t.reader.stream || t.Encoded() {
		return len(p)
	}
	return t.reader.rest(p)
}

// ErrorEvent returns the event that ends this stream with an error.
func (t *Tap) ErrorEvent(kind, message string) []byte {
	return errorEvent(t.reader.format, kind, message, t.reader.sequence())
}
