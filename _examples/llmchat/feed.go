package main

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
)

// queue keeps the positions of the requests that wait at this replica. The queue itself is in
// Redis, and a position counts the requests of all replicas.
type queue struct {
	mu       sync.Mutex
	places   map[string][]place       // by caller
	watchers map[chan struct{}]string // the caller whose places each one watches
}

// place is the position of a waiting request; 0 is the next.
type place struct {
	Stream string `json:"stream"`
	Place  int    `json:"place"`
}

func (q *queue) enter(caller, stream string, n int) { q.change(caller, stream, place{stream, n}) }

func (q *queue) leave(caller, stream string) { q.change(caller, stream) }

func (q *queue) change(caller, stream string, now ...place) {
	if caller == "" || stream == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	others := slices.DeleteFunc(q.places[caller], func(p place) bool { return p.Stream == stream })
	if q.places[caller] = append(others, now...); len(q.places[caller]) == 0 {
		delete(q.places, caller)
	}
	for changed, watched := range q.watchers {
		if watched == caller {
			select {
			case changed <- struct{}{}:
			default: // the watcher has not read the last change yet
			}
		}
	}
}

func (q *queue) look(caller string) []place {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]place{}, q.places[caller]...)
}

// watch returns a channel that receives when a place of the caller changes, until stop is called.
func (q *queue) watch(caller string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watchers[c] = caller
	return c, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.watchers, c)
	}
}

// status is what a feed sends a user about the user's streams.
type status struct {
	Replica string    `json:"replica"`
	Tenant  int       `json:"tenant"` // running streams of the tenant
	Running []running `json:"running"`
	Queued  []place   `json:"queued"`
}

type running struct {
	Stream  string `json:"stream"`
	Replica string `json:"replica"`
}

// feed sends a user, as server-sent events, the user's streams that run at any replica and the
// positions of those that wait at this one.
func (g *gateway) feed(w http.ResponseWriter, r *http.Request) {
	caller := g.callerOf(r)
	tenant, err := g.tenant(r)
	key, keyErr := core.NewKey(tenant)
	if caller == "" || err != nil || keyErr != nil {
		http.Error(w, "the request names no user", http.StatusBadRequest)
		return
	}
	to := newEvents(w)
	defer to.close()
	tick := time.NewTicker(time.Second) // other replicas send no changes
	defer tick.Stop()
	changed, stop := g.queue.watch(caller)
	defer stop()
	for before := (status{}); ; {
		now, err := g.status(r.Context(), key, caller)
		if err == nil && !reflect.DeepEqual(now, before) { // on an error the feed stays as it is
			if to.sendJSON(now) != nil {
				return
			}
			before = now
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-r.Context().Done():
			return
		case <-g.feeds.Done():
			return
		}
	}
}

func (g *gateway) status(ctx context.Context, tenant core.Key, caller string) (status, error) {
	s := status{Replica: g.name, Running: []running{}, Queued: g.queue.look(caller)}
	holders, _, err := g.streams.Holders(ctx, tenant)
	s.Tenant = len(holders)
	for _, h := range holders {
		if h.Meta["caller"] == caller {
			s.Running = append(s.Running, running{h.Meta["stream"], h.Meta["replica"]})
		}
	}
	return s, err
}
