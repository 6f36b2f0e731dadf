package outbound

import (
	"bytes"
	"time"

	"github.com/headgate/headgate/outbound/internal/signal"
)

// stream is a response whose status does not tell how it ends: an upstream may refuse in the middle.
type stream struct {
	sent   time.Time
	events *signal.Events
	failed bool // an event has told an error
}

// look looks for an error in the next part of a stream, which begins a cooldown in the background if
// it is a refusal.
func (p *pass) look(part []byte) {
	s := p.stream
	if s == nil || s.failed {
		return
	}
	event := s.events.Find(part)
	if event == nil {
		return
	}
	s.failed = true
	status, told := signal.ReadEvent(p.res.Header, bytes.Clone(event), now())
	if told.Refused || told.Spent {
		p.x.t.tasks.Go(func() { p.x.refused(status, told) })
	}
}
