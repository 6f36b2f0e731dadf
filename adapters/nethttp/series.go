package nethttp

import (
	"strconv"

	"github.com/headgate/headgate/internal/series"
)

// What went wrong, the events of core and of semaphore say too.
func init() { series.Register((*AdmissionEvent).record, series.Unnoted) }

func (e *AdmissionEvent) record(w *series.Recording) {
	status := "admitted"
	if n := e.Admission.Status(); e.Admission.Replayed() {
		status = "replayed"
	} else if n != 0 {
		status = strconv.Itoa(n)
	}
	w.Record(series.Admissions, 1, status)
}
