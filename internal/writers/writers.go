// Package writers gives the http.ResponseWriters of middleware the optional interfaces of those that
// they stand in for.
package writers

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Own is what a middleware puts in place of the ResponseWriter that Unwrap returns. An
// http.ResponseController flushes by FlushError, so it does not pass Own.
type Own interface {
	http.ResponseWriter
	io.StringWriter
	io.ReaderFrom
	FlushError() error
	Hijack() (net.Conn, *bufio.ReadWriter, error)
	Unwrap() http.ResponseWriter
}

// notifier is http.CloseNotifier, which is deprecated. gin's Context.Stream needs it.
type notifier interface{ CloseNotify() <-chan bool }

// Flushes reports whether an http.ResponseController can flush w. It asks the ResponseWriter below
// first, because an Own has FlushError whatever is below it.
func Flushes(w http.ResponseWriter) bool {
	switch w := w.(type) {
	case http.Flusher:
		return true
	case interface{ Unwrap() http.ResponseWriter }:
		return Flushes(w.Unwrap())
	case interface{ FlushError() error }:
		return true
	}
	return false
}

// canHijack reports whether an http.ResponseController can hijack w.
func canHijack(w http.ResponseWriter) bool {
	switch w := w.(type) {
	case http.Hijacker:
		return true
	case interface{ Unwrap() http.ResponseWriter }:
		return canHijack(w.Unwrap())
	}
	return false
}

// ErrorFlusher returns what flushes w as an http.ResponseController does. A flush of a stream passes
// several ResponseWriters: with a ResponseController between each two, it needs more stack.
func ErrorFlusher(w http.ResponseWriter) interface{ FlushError() error } {
	if f, ok := w.(interface{ FlushError() error }); ok {
		return f
	}
	return controlled{w}
}

// controlled is a ResponseWriter that an http.ResponseController flushes.
type controlled struct{ w http.ResponseWriter }

func (c controlled) FlushError() error { return http.NewResponseController(c.w).Flush() }
