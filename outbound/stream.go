package outbound

import (
	"time"

	"github.com/headgate/headgate/outbound/internal/signal"
)

// stream is a response whose status does not tell how it ends: an upstream may refuse in the middle.
type stream struct {
	sent   time.Time
	events *signal.Events
}

// look looks for a refusal in the next part of a stream, which begins a cooldown in the background.
func (p *pass) look(part []byte) {
	if p.stream == nil || p.refused {
		return
	}
	status, told := p.stream.events.Find(part, now())
	if p.refused = told.Refused || told.Spent; p.refused {
		p.x.t.tasks.Go(func() { p.x.refused(status, told) })
	}
}
