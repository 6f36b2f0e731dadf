package nethttp

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

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
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.status = int32(status)
	}
}

// watch returns a ResponseWriter that records in seen what is written to it. It has Unwrap and the
// optional interfaces of w.
func watch(w http.ResponseWriter, seen *response) http.ResponseWriter {
	return httpsnoop.Wrap(w, httpsnoop.Hooks{
		WriteHeader: func(next httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc {
			return func(status int) { seen.sent(status); next(status) }
		},
		Write: func(next httpsnoop.WriteFunc) httpsnoop.WriteFunc {
			return func(b []byte) (int, error) { seen.sent(http.StatusOK); return next(b) }
		},
		WriteString: func(next httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc {
			return func(s string) (int, error) { seen.sent(http.StatusOK); return next(s) }
		},
		ReadFrom: func(next httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc {
			return func(src io.Reader) (int64, error) {
				n, err := next(src)
				if n > 0 { // otherwise the handler may still report that src failed
					seen.sent(http.StatusOK)
				}
				return n, err
			}
		},
		Flush: func(next httpsnoop.FlushFunc) httpsnoop.FlushFunc {
			return func() { seen.sent(http.StatusOK); next() }
		},
		FlushError: func(next httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc {
			return func() error { seen.sent(http.StatusOK); return next() }
		},
		Hijack: func(next httpsnoop.HijackFunc) httpsnoop.HijackFunc {
			return func() (net.Conn, *bufio.ReadWriter, error) {
				conn, rw, err := next()
				if err == nil {
					seen.sent(http.StatusSwitchingProtocols)
				}
				return conn, rw, err
			}
		},
	})
}
