package main

import (
	"net/http"
	"time"
)

// stallTimeout bounds one write.
const stallTimeout = 10 * time.Second

// endStalled ends responses whose client does not read. Without a deadline such a client would hold
// its slot forever.
func endStalled(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		defer control.SetWriteDeadline(time.Time{}) // it would end the connection's next request
		next.ServeHTTP(&stallWriter{w, control}, r)
	})
}

type stallWriter struct {
	http.ResponseWriter
	control *http.ResponseController
}

// Write implements http.ResponseWriter.
func (w *stallWriter) Write(p []byte) (int, error) {
	if err := w.control.SetWriteDeadline(time.Now().Add(stallTimeout)); err != nil {
		return 0, err
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *stallWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
