package report

import (
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
}

// place is a series and the value of its label.
type place struct {
	series *series.Series
	value  string
}

// Watch adds a Gate to those whose series Read reads, until it is closed. It reports whether there
// is one.
func (w *watched) Watch(gate *core.Gate) bool {
	lent := hub.Of(gate)
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
	w.gates = slices.DeleteFunc(w.gates, func(h *hub.Hub) bool { return h.Closed() })
	gates := slices.Clone(w.gates)
	w.mu.Unlock()
	sums := make(map[place]float64)
	sum := func(s *series.Series, value string, n float64) {
		sums[place{s, w.recorder.Bounded(s.Labels[0], value)}] += n
	}
	for _, h := range gates {
		for name, count := range h.Keeper.Count() {
			sum(series.ActiveLeases, name, float64(count.Held))
			sum(series.QueuedRequests, name, float64(count.Queued))
		}
		if h.Use == nil {
			continue
		}
		for _, u := range h.Use() {
			sum(series.RoundTrips, nodeName(u.Node), float64(u.Trips))
			sum(series.RoundTripFailures, nodeName(u.Node), float64(u.Failed))
			sum(series.RoundTripCalls, nodeName(u.Node), float64(u.Calls))
			sum(series.RoundTripTime, nodeName(u.Node), u.Time.Seconds())
		}
	}
	for at, n := range sums {
		yield(at.series, []string{at.value}, n)
	}
}
