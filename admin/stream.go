package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// How often figures are sent, how often the right to read them is asked for again, and how long a
// browser may take to receive them.
const (
	overviewInterval = time.Second
	subjectInterval  = 2 * time.Second
	accessInterval   = 15 * time.Second
	sendTimeout      = 10 * time.Second
)

// stream sends the live part of a page as server-sent events: of a key, or of the first page.
func (a *Admin) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case a.streams <- struct{}{}:
		defer func() { <-a.streams }()
	default:
		w.Header().Set("Retry-After", "10")
		a.fail(w, r, http.StatusServiceUnavailable, "Too many pages are open.")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx sends each event at once
	interval, draw := overviewInterval, a.drawOverview
	if r.URL.Query().Has("key") {
		interval, draw = subjectInterval, a.drawSubject
	}
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	checked := time.Now()
	for {
		if time.Since(checked) > accessInterval {
			if _, err := who(r, a.cfg.Read); err != nil {
				return
			}
			checked = time.Now()
		}
		if err := send(w, draw(r)); err != nil {
			return
		}
		select {
		case <-ticks.C:
		case <-a.closing:
			return
		case <-r.Context().Done():
			return
		}
		if a.hub.Closed() {
			return
		}
	}
}

func (a *Admin) drawOverview(r *http.Request) []byte {
	return a.draw("live-overview", a.now(r.Context()))
}

func (a *Admin) drawSubject(r *http.Request) []byte {
	v, _ := a.look(r)
	return a.draw("live-subject", v)
}

func (a *Admin) draw(name string, body any) []byte {
	var text bytes.Buffer
	if err := a.templates.ExecuteTemplate(&text, name, body); err != nil {
		return nil
	}
	return text.Bytes()
}

// send sends an event, within a time of its own: a server's WriteTimeout is for short responses.
func send(w http.ResponseWriter, text []byte) error {
	c := http.NewResponseController(w)
	_ = c.SetWriteDeadline(time.Now().Add(sendTimeout)) // where the server knows none, none is needed
	// A client may have put carriage returns into its metadata. They would end a line of the event,
	// and what is behind them would be fields of it.
	text = bytes.ReplaceAll(text, []byte{'\r'}, []byte("&#13;"))
	var event strings.Builder
	for line := range bytes.Lines(text) {
		fmt.Fprintf(&event, "data: %s\n", bytes.TrimRight(line, "\n"))
	}
	event.WriteString("\n")
	if _, err := w.Write([]byte(event.String())); err != nil {
		return err
	}
	return c.Flush()
}
