package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// board keeps the queue of this replica, and sends snapshots of the gateway to pages. It reads the
// limits only while a page watches, once for all pages.
type board struct {
	read    func(context.Context) snapshot
	changes chan struct{}
	ended   chan struct{}

	mu       sync.Mutex
	places   map[*caller]int
	watchers map[chan []byte]bool
}

// refresh is how often limits are read again: other replicas send no changes.
const refresh = 500 * time.Millisecond

func newBoard(read func(context.Context) snapshot) *board {
	return &board{
		read:     read,
		changes:  make(chan struct{}, 1),
		ended:    make(chan struct{}),
		places:   make(map[*caller]int),
		watchers: make(map[chan []byte]bool),
	}
}

// enter records the place of a waiting request; 0 is the next. The queue itself is in Redis, and a
// place counts the requests of all replicas.
func (b *board) enter(c *caller, place int) {
	b.mu.Lock()
	b.places[c] = place
	b.mu.Unlock()
	b.change()
}

func (b *board) leave(c *caller) {
	b.mu.Lock()
	delete(b.places, c)
	b.mu.Unlock()
	b.change()
}

// queued returns the waiting requests of a tenant at this replica, in no order.
func (b *board) queued(t *tenant) []stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := []stream{}
	for c, place := range b.places {
		if c.tenant == t {
			all = append(all, stream{User: c.name, Request: c.request, Place: place})
		}
	}
	return all
}

// change makes run send a snapshot soon.
func (b *board) change() {
	select {
	case b.changes <- struct{}{}:
	default: // run has not read the last change yet
	}
}

// run sends snapshots until ctx ends, which ends the feeds too.
func (b *board) run(ctx context.Context) {
	defer close(b.ended)
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-b.changes:
		}
		b.mu.Lock()
		watched := len(b.watchers) > 0
		b.mu.Unlock()
		if !watched {
			continue
		}
		text, err := json.Marshal(b.read(ctx))
		if err != nil { // strings and numbers always marshal
			continue
		}
		b.publish(text)
	}
}

// publish gives each watcher the snapshot, in place of one that it has not read yet.
func (b *board) publish(text []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for to := range b.watchers {
		select {
		case <-to:
		default:
		}
		to <- text
	}
}

func (b *board) watch() (snapshots <-chan []byte, stop func()) {
	to := make(chan []byte, 1)
	b.mu.Lock()
	b.watchers[to] = true
	b.mu.Unlock()
	b.change()
	return to, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.watchers, to)
	}
}

// ServeHTTP sends snapshots that differ, as server-sent events.
func (b *board) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	snapshots, stop := b.watch()
	defer stop()
	for before := []byte(nil); ; {
		select {
		case now := <-snapshots:
			if bytes.Equal(now, before) {
				continue
			}
			before = now
			if control.SetWriteDeadline(time.Now().Add(stallTimeout)) != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", now); err != nil || control.Flush() != nil {
				return
			}
		case <-r.Context().Done():
			return
		case <-b.ended:
			return
		}
	}
}
