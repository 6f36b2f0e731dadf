package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// events writes server-sent events and flushes each.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func newEvents(w http.ResponseWriter) events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	return events{w, http.NewResponseController(w)}
}

func (e events) send(data string) error {
	// Without a deadline a client that does not read would hold its slot forever.
	if err := e.control.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	if _, err := fmt.Fprintf(e.w, "data: %s\n\n", data); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	if err := e.control.Flush(); err != nil {
		return fmt.Errorf("event: %w", err)
	}
	return nil
}

func (e events) sendJSON(data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	return e.send(string(text))
}

// close removes the deadline, which would end the next request on the connection.
func (e events) close() { _ = e.control.SetWriteDeadline(time.Time{}) }
