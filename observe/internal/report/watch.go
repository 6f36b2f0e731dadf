package report

import (
	"maps"
	"slices"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/series"
)

// watched is the Gates whose state is read.
type watched struct {
	recorder *series.Recorder

	mu    sync.Mutex
	gates []*hub.Hub
	ended map[place]float64 // counters of the Gates that are closed, which must not fall
}

// place is a series and the value of its label.
type place struct {
	series *series.Series
	value  string
}

// Watch adds a Gate to those whose series Read reads, until it is closed: its counters stay. It reports whether there
// is one.
func (w *watched) Watch(gate *core.Gate) bool {
	lent := core.Inside(hub.Pass{}).Of(gate)
	if lent == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.gates, lent) {
		w.gates = append(w.gates, lent)
	}
	return true
}

// Read calls yield for each series whose values no event tells, once for each combination of its
// labels. Gates that share a name or a server are summed up.
func (w *watched) Read(yield func(s *series.Series, values []string, value float64)) {
	w.mu.Lock()
	w.gates = slices.DeleteFunc(w.gates, func(h *hub.Hub) bool {
		closed := h.Closed()
		if closed {
			w.readTrips(h, func(at place, n float64) { w.ended[at] += n })
		}
		return closed
	})
	gates, sums := slices.Clone(w.gates), maps.Clone(w.ended)
	w.mu.Unlock()
	sum := func(at place, n float64) { sums[at] += n }
	for _, h := range gates {
		for name, count := range h.Keeper.Count() {
			sum(w.place(series.ActiveLeases, name), float64(count.Held))
			sum(w.place(series.QueuedRequests, name), float64(count.Queued))
		}
		w.readTrips(h, sum)
	}
	for at, n := range sums {
		yield(at.series, []string{at.value}, n)
	}
}

func (w *watched) place(s *series.Series, value string) place {
	return place{s, w.recorder.Bounded(s.Labels[0], value)}
}

// readTrips calls sum for each counter of the round trips of a Gate.
func (w *watched) readTrips(h *hub.Hub, sum func(at place, n float64)) {
	if h.Use == nil {
		return
	}
	for _, u := range h.Use() {
		node := nodeName(u.Node)
		sum(w.place(series.RoundTrips, node), float64(u.Trips))
		sum(w.place(series.RoundTripFailures, node), float64(u.Failed))
		sum(w.place(series.RoundTripCalls, node), float64(u.Calls))
		sum(w.place(series.RoundTripTime, node), u.Time.Seconds())
	}
}
