package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
)

// frames holds the binary frame that has begun, until all of it has come.
type frames struct {
	held []byte
}

const (
	maxFrame    = 1 << 20 // a longer one is read no further
	smallFrame  = 16 << 10
	lengthBytes = 4
)

// between reports whether another frame could begin here.
func (f *frames) between() bool { return len(f.held) == 0 }

// readFrame reads a part of a binary frame, and reports whether the frame has ended.
func (r *reader) readFrame(p []byte) (n int, ended bool) {
	f := &r.frames
	n = min(lengthBytes-len(f.held), len(p))
	if len(f.held) >= lengthBytes {
		n = int(min(f.length()-int64(len(f.held)), int64(len(p))))
	}
	f.held = append(f.held, p[:n]...)
	if len(f.held) < lengthBytes {
		return n, false
	}
	switch length := f.length(); {
	case length > maxFrame:
		r.found.Broken, r.framing = true, documentFraming
	case int64(len(f.held)) >= length:
		r.frame(f.held)
		if f.held = f.held[:0]; cap(f.held) > smallFrame {
			f.held = nil
		}
		return n, true
	}
	return n, false
}

// length returns the length that a frame states.
func (f *frames) length() int64 { return int64(binary.BigEndian.Uint32(f.held)) }

// frame reads one frame as an event.
func (r *reader) frame(b []byte) {
	message, err := eventstream.NewDecoder().Decode(bytes.NewReader(b), nil)
	if err != nil {
		r.found.Broken = true
		return
	}
	for _, h := range message.Headers {
		switch h.Name {
		case ":event-type", ":exception-type":
			r.EventName([]byte(h.Value.String()))
		}
		r.event.fault = r.event.fault || h.Name == ":exception-type"
	}
	payload := message.Payload
	var wrapped struct{ Bytes []byte }
	if json.Unmarshal(payload, &wrapped) == nil && len(wrapped.Bytes) > 0 {
		payload = wrapped.Bytes // of a model's own format
	}
	r.EventData(payload)
	r.EventEnd(true)
}

// frameOf returns a frame that reports an exception.
func frameOf(kind string, payload []byte) []byte {
	var m eventstream.Message
	for _, h := range [...][2]string{
		{":exception-type", kind}, {":content-type", "application/json"}, {":message-type", "exception"},
	} {
		m.Headers.Set(h[0], eventstream.StringValue(h[1]))
	}
	m.Payload = payload
	var b bytes.Buffer
	if eventstream.NewEncoder().Encode(&b, m) != nil {
		return nil // a buffer does not fail, and the headers are short
	}
	return b.Bytes()
}
