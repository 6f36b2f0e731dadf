package nethttp

import "net/http"

// response is what a handler has done with a ResponseWriter.
type response struct{ status int32 }

// code returns the status of the response. A handler that panics before it responds has 500.
func (r *response) code(returned bool) int {
	switch {
	case r.status != 0:
		return int(r.status)
	case returned:
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

// sent records the first final status. 101 is final although it is informational.
func (r *response) sent(status int) {
	if r.status == 0 && !informational(status) {
		r.status = int32(status)
	}
}
