package nethttp

import "net/http"

// Dialect is how one family of clients learns about limits and refusals. Draft11 is the default;
// Legacy and None are here too, and those of model APIs are in package llm. A Dialect must be safe
// for concurrent use.
//
// Beside what a Dialect writes, every refusal has Cache-Control: no-store, and Retry-After if a wait
// can change it (RFC 9110, section 10.2.3): whole seconds, rounded up, at least 1. See
// Config.LongestWait for refusals with a longer wait, and for those that no wait lifts.
type Dialect interface {
	// Status returns the status of a refusal. It is given one of those that Admission.Status lists,
	// and returns that status unless clients expect another in its place.
	Status(status int) int
	// WriteHeaders states the limits in the headers of a response, also of a refusal. Headers that
	// an outer Guard has set are there, Retry-After too.
	WriteHeaders(h http.Header, a *Admission)
	// WriteRefusal writes a refusal's status and body. The headers are set before. The status is at
	// least 400.
	WriteRefusal(w http.ResponseWriter, r *http.Request, a *Admission)
}

// None is the Dialect without headers that state limits.
type None struct {
	// Refusal is the body of a refusal. The zero value is problem details.
	Refusal
}

// WriteHeaders sets nothing.
func (None) WriteHeaders(http.Header, *Admission) {}
