package llm

import (
	"mime"
	"strings"
)

// maxHeld is how many bytes of an unfinished event a tap holds back. A longer event is no usage
// chunk.
const maxHeld = 64 << 10

// tap reads what a server responds and finds out what it used. Write the whole body through it and
// close it: an encoded response has a goroutine until then. One goroutine at a time writes, closes
// and asks between. Any goroutine may ask for result and errorEvent.
type tap struct {
	observer observer
	coding   coding
	hide     bool
	closed   bool
	inflater *inflater

	held []byte // of the event that has begun, not passed on yet
	long bool   // that event is longer than maxHeld and is passed on
	lone bool   // the last event was hidden
}

// coding is what a tap can do with the encoding of a response.
type coding uint8

const (
	codingNone  coding = iota
	codingGzip         // read aside, passed on as it is
	codingOther        // passed on unread
)

// codingOf reads a Content-Encoding.
func codingOf(encoding string) coding {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return codingNone
	case "gzip", "x-gzip":
		return codingGzip
	}
	return codingOther
}

// newTap returns a tap for a response with a Content-Type and a Content-Encoding. With hide it
// leaves out a chat's chunk that holds only the usage, for a client that did not ask for it. It
// cannot hide the chunk of an encoded response, so request an unencoded one.
func newTap(f Format, contentType, encoding string, hide bool) *tap {
	t := &tap{coding: codingOf(encoding)}
	media, _, _ := mime.ParseMediaType(contentType) // empty if it is invalid
	stream := media == "text/event-stream"
	t.observer.init(f, stream)
	t.hide = hide && stream && f == OpenAIChat && t.coding == codingNone
	return t
}

// write passes p on through out and reads it. Without hiding it passes p on first, unchanged. An
// error of out is returned at the end: p is read nonetheless. A nil out takes nothing.
func (t *tap) write(p []byte, out func([]byte) error) error {
	if t.closed {
		return pass(p, nil, out)
	}
	if t.hide {
		return t.writeEvents(p, out)
	}
	err := pass(p, nil, out)
	switch t.coding {
	case codingNone:
		t.observer.read(p)
	case codingGzip:
		if t.inflater == nil {
			t.inflater = newInflater(&t.observer)
		}
		t.inflater.write(p)
	}
	return err
}

// writeEvents passes on what is known to be no usage chunk, in as few pieces as it can.
func (t *tap) writeEvents(p []byte, out func([]byte) error) error {
	var err error
	from, at := 0, 0 // p[from:at] can be passed on; the event that is read has begun at p[at:]
	if t.observer.split.Tail(p) {
		t.observer.readEvent(p[:1])
		if at = 1; t.lone {
			from = 1
		}
	}
	for i := at; i < len(p); {
		n, ended, lone := t.observer.readEvent(p[i:])
		i += n
		if !ended {
			break
		}
		t.lone = lone && !t.long && len(t.held)+i-at <= maxHeld
		if t.observer.split.Tail(p[i:]) {
			t.observer.readEvent(p[i : i+1])
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
	if t.long = t.long || len(t.held)+len(p)-at > maxHeld; t.long {
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

// close ends the response and passes on what is held back. To drop that, pass a nil out. It waits
// for the tap's goroutine. Later calls do nothing, and later writes are passed on unread.
func (t *tap) close(out func([]byte) error) error {
	if t.closed {
		return nil
	}
	t.closed = true
	if t.inflater != nil {
		t.inflater.close()
	}
	if t.coding != codingOther {
		t.observer.close()
	}
	held := t.held
	t.held = nil
	if len(held) > 0 && t.observer.lone {
		return nil
	}
	return pass(held, nil, out)
}

// result returns what has been found out so far.
func (t *tap) result() Observed { return t.observer.result() }

// between reports whether what was passed on ends between two events. Only there may errorEvent
// follow.
func (t *tap) between() bool {
	if !t.observer.stream || t.coding != codingNone {
		return false
	}
	if len(t.held) > 0 {
		return true
	}
	return t.observer.between()
}

// rest returns how many bytes of p belong to the event that has begun: all of p if it does not end
// there.
func (t *tap) rest(p []byte) int {
	o := &t.observer
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.stream || t.coding != codingNone {
		return len(p)
	}
	return o.split.Rest(p)
}

// errorEvent returns the event that ends this stream with an error.
func (t *tap) errorEvent(kind, message string) []byte {
	t.observer.mu.Lock()
	defer t.observer.mu.Unlock()
	return errorEvent(t.observer.format, kind, message, t.observer.next)
}
