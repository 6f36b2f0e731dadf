package outbound

import (
	"time"

	"github.com/headgate/headgate/outbound/internal/signal"
)

// stream is a response whose status does not tell how it ends: an upstream may refuse in the middle.
type stream struct {
	sent   time.Time
	events *signal.Events
	failed bool // an event was a refusal
}

// look looks for a refusal in the next part of a stream, which begins a cooldown in the background.
func (p *pass) look(part []byte) {
	s := p.stream
	if s == nil || s.failed {
		return
	}
	status, told := s.events.Find(part, now())
	if s.failed = told.Refused || told.Spent; s.failed {
		p.x.t.tasks.Go(func() { p.x.refused(status, told) })
	}
}
