package nethttp

import "net/http"

// AdmissionEvent is what Config.Observe is given: a Guard has decided on a request and has not yet
// acted on that. If the request has an id, so has the Replay around the Guard.
type AdmissionEvent struct {
	// Request is the request.
	Request *http.Request
	// Admission is the outcome. It is valid after Observe too.
	Admission *Admission
}

// EventName returns "admit".
func (*AdmissionEvent) EventName() string { return "admit" }
