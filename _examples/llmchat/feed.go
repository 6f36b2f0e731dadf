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

// queue knows the places of the requests that wait at this replica. The queue itself is in Redis: a place is one among those of
// all replicas.
type queue struct {
	mu       sync.Mutex
	places   map[string][]place       // by whose they are
	watchers map[chan struct{}]string // whose they watch
}

// place is that of a request that waits: 0 is the next.
type place struct {
	Stream string `json:"stream"`
	Place  int    `json:"place"`
}

func (q *queue) enter(whose, stream string, n int) { q.change(whose, stream, place{stream, n}) }

func (q *queue) leave(whose, stream string) { q.change(whose, stream) }

func (q *queue) change(whose, stream string, now ...place) {
	if whose == "" || stream == "" {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	others := slices.DeleteFunc(q.places[whose], func(p place) bool { return p.Stream == stream })
	if q.places[whose] = append(others, now...); len(q.places[whose]) == 0 {
		delete(q.places, whose)
	}
	for changed, of := range q.watchers {
		if of == whose {
			select {
			case changed <- struct{}{}:
			default: // it has yet to look at the change before
			}
		}
	}
}

func (q *queue) look(whose string) []place {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]place{}, q.places[whose]...)
}

// watch returns what is sent to when something of somebody's has changed, until stop is called.
func (q *queue) watch(whose string) (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.watchers[c] = whose
	return c, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.watchers, c)
	}
}

// status is what a feed tells a user about his streams.
type status struct {
	Replica string    `json:"replica"`
	Tenant  int       `json:"tenant"` // streams of his tenant that run
	Running []running `json:"running"`
	Queued  []place   `json:"queued"`
}

type running struct {
	Stream  string `json:"stream"`
	Replica string `json:"replica"`
}

// feed tells a user as server-sent events which of his streams run, at any replica, and which wait where, at this one.
func (g *gateway) feed(w http.ResponseWriter, r *http.Request) {
	whose := g.whose(r)
	tenant, err := g.tenant(r)
	key, keyErr := core.NewKey(tenant)
	if whose == "" || err != nil || keyErr != nil {
		http.Error(w, "who asks?", http.StatusBadRequest)
		return
	}
	to := newEvents(w)
	defer to.close()
	tick := time.NewTicker(time.Second) // other replicas' streams come and go unheard
	defer tick.Stop()
	changed, stop := g.queue.watch(whose)
	defer stop()
	for before := (status{}); ; {
		now, err := g.status(r.Context(), key, whose)
		if err == nil && !reflect.DeepEqual(now, before) { // else it tells when it knows
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

func (g *gateway) status(ctx context.Context, tenant core.Key, whose string) (status, error) {
	s := status{Replica: g.name, Running: []running{}, Queued: g.queue.look(whose)}
	holders, _, err := g.streams.Holders(ctx, tenant)
	s.Tenant = len(holders)
	for _, h := range holders {
		if h.Meta["whose"] == whose {
			s.Running = append(s.Running, running{h.Meta["stream"], h.Meta["replica"]})
		}
	}
	return s, err
}
