package nethttp

import "net/http"

// None is the Dialect without headers that state limits.
type None struct {
	// Refusal is the body of a refusal. The zero value is problem details.
	Refusal Refusal
}

// Status returns the same status.
func (None) Status(status int) int { return status }

// WriteHeaders sets nothing.
func (None) WriteHeaders(http.Header, *Admission) {}

// WriteRefusal answers with problem details or a line of text.
func (n None) WriteRefusal(w http.ResponseWriter, r *http.Request, a *Admission) {
	n.Refusal.write(w, r, a)
}
