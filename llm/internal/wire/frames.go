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
	skip int64 // bytes of a frame that is too long to be held
}

const (
	maxFrame    = 1 << 20 // a longer one has no usage and no text of a model
	smallFrame  = 16 << 10
	lengthBytes = 4
)

// wanted returns the number of bytes that are missing from the frame that has begun, or from its
// length.
func (f *frames) wanted() int64 {
	if len(f.held) < lengthBytes {
		return int64(lengthBytes - len(f.held))
	}
	return max(1, int64(binary.BigEndian.Uint32(f.held))-int64(len(f.held)))
}

// between reports whether another frame could begin here.
func (f *frames) between() bool { return len(f.held) == 0 && f.skip == 0 }

// rest returns the number of bytes of p that belong to the frame that has begun.
func (f *frames) rest(p []byte) int {
	switch {
	case f.skip > 0:
		return int(min(f.skip, int64(len(p))))
	case len(f.held) == 0:
		return 0
	case len(f.held) < lengthBytes: // Rest does not read, so it cannot know the length
		ahead := frames{held: append(bytes.Clone(f.held), p[:min(len(p), lengthBytes)]...)}
		if len(ahead.held) < lengthBytes {
			return len(p)
		}
		length := int64(binary.BigEndian.Uint32(ahead.held))
		return int(min(int64(len(p)), max(1, length-int64(len(f.held)))))
	}
	return int(min(f.wanted(), int64(len(p))))
}

// readFrames reads binary frames.
func (r *reader) readFrames(p []byte) {
	f := &r.frames
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, int64(len(p)))
			f.skip -= n
			p = p[n:]
			continue
		}
		n := min(f.wanted(), int64(len(p)))
		f.held = append(f.held, p[:n]...)
		p = p[n:]
		if len(f.held) < lengthBytes {
			continue
		}
		length := int64(binary.BigEndian.Uint32(f.held))
		switch {
		case length > maxFrame:
			r.found.Broken = true
			f.skip = length - int64(len(f.held))
			f.held = f.held[:0]
		case int64(len(f.held)) >= length:
			r.frame(f.held)
			if f.held = f.held[:0]; cap(f.held) > smallFrame {
				f.held = nil
			}
		}
	}
}

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
