package nethttp

import (
	"strconv"

	"github.com/headgate/headgate/internal/series"
)

func init() {
	series.Register(series.Family{
		Measure: recordEvent,
		// What went wrong, the events of core and of semaphore say too.
		Note: func(series.Event) series.Note { return series.Note{} },
	})
}

// recordEvent records an event for those who watch metrics.
func recordEvent(e series.Event, w *series.Recording) bool {
	event, ok := e.(*AdmissionEvent)
	if !ok {
		return false
	}
	status := "admitted"
	if n := event.Admission.Status(); event.Admission.Replayed() {
		status = "replayed"
	} else if n != 0 {
		status = strconv.Itoa(n)
	}
	w.Record(series.Admissions, 1, status)
	return true
}
