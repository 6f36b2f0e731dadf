package nethttp

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/felixge/httpsnoop"
)

// Writer returns the ResponseWriter for the handler of an admitted request, one on w that keeps
// headers as RestoreHeaders describes. It has Unwrap and the optional interfaces of w. If there is
// nothing to keep and nothing depends on the response, it is w. An adapter calls it once, after
// WriteHeaders.
func (x *Exchange) Writer(w http.ResponseWriter) http.ResponseWriter {
	if !x.watches() && (x.skipped || len(w.Header()) == 0) {
		return w
	}
	x.w = w
	return x.writer()
}

// writer passes a response on to the ResponseWriter of an exchange. It records the status and keeps
// the headers. Like the types that embed it, it holds one pointer, so that an interface of it takes
// no allocation.
type writer struct{ x *Exchange }

// A flushing is a writer on a ResponseWriter that flushes. Those on the ResponseWriters of servers
// have more: hijacking and reading, or pushing.
type (
	flushing  struct{ writer }
	reading   struct{ flushing } // Hijack and ReadFrom
	notifying struct{ reading }  // and CloseNotify, as net/http has for HTTP/1
	pushing   struct{ flushing } // Push and CloseNotify, as net/http has for HTTP/2
)

// notifier is http.CloseNotifier, which is deprecated. gin's Context.Stream needs it.
type notifier interface{ CloseNotify() <-chan bool }

// writer returns a writer with the optional interfaces of x.w.
func (x *Exchange) writer() http.ResponseWriter {
	w := x.w
	_, flushes := w.(http.Flusher)
	_, hijacks := w.(http.Hijacker)
	_, reads := w.(io.ReaderFrom)
	_, pushes := w.(http.Pusher)
	_, notifies := w.(notifier)
	base := flushing{writer{x}}
	switch [...]bool{flushes, hijacks, reads, pushes, notifies} {
	case [...]bool{true, true, true, false, true}:
		return notifying{reading{base}}
	case [...]bool{true, false, false, true, true}:
		return pushing{base}
	case [...]bool{true, true, true, false, false}:
		return reading{base}
	case [...]bool{true, false, false, false, false}:
		return base
	}
	return x.snoop(reading{base})
}

// snoop returns a writer with any other interfaces of x.w. It takes more allocations.
func (x *Exchange) snoop(own reading) http.ResponseWriter {
	return httpsnoop.Wrap(x.w, httpsnoop.Hooks{
		Header:      func(httpsnoop.HeaderFunc) httpsnoop.HeaderFunc { return own.Header },
		WriteHeader: func(httpsnoop.WriteHeaderFunc) httpsnoop.WriteHeaderFunc { return own.WriteHeader },
		Write:       func(httpsnoop.WriteFunc) httpsnoop.WriteFunc { return own.Write },
		WriteString: func(httpsnoop.WriteStringFunc) httpsnoop.WriteStringFunc { return own.WriteString },
		ReadFrom:    func(httpsnoop.ReadFromFunc) httpsnoop.ReadFromFunc { return own.ReadFrom },
		Flush:       func(httpsnoop.FlushFunc) httpsnoop.FlushFunc { return own.Flush },
		FlushError:  func(httpsnoop.FlushErrorFunc) httpsnoop.FlushErrorFunc { return own.FlushError },
		Hijack:      func(httpsnoop.HijackFunc) httpsnoop.HijackFunc { return own.Hijack },
	})
}

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.x.w }

// Header implements http.ResponseWriter.
func (w writer) Header() http.Header {
	h := w.x.w.Header()
	w.x.KeepHeaders(h)
	if w.x.seen.status == http.StatusSwitchingProtocols { // a proxy writes them to what it hijacked
		w.x.RestoreHeaders(h, http.StatusSwitchingProtocols)
	}
	return h
}

// WriteHeader implements http.ResponseWriter.
func (w writer) WriteHeader(status int) {
	w.begin(status)
	w.x.w.WriteHeader(status)
}

// begin is called before a header with this status may be sent.
func (w writer) begin(status int) {
	if w.x.seen.status == 0 {
		w.x.RestoreHeaders(w.x.w.Header(), status)
		w.x.seen.sent(status)
	}
}

// Write implements http.ResponseWriter.
func (w writer) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.x.w.Write(p)
}

// WriteString implements io.StringWriter.
func (w writer) WriteString(s string) (int, error) {
	w.begin(http.StatusOK)
	return io.WriteString(w.x.w, s)
}

// Flush implements http.Flusher.
func (w flushing) Flush() { _ = w.FlushError() }

// FlushError is for http.ResponseController.
func (w flushing) FlushError() error {
	w.begin(http.StatusOK)
	return http.NewResponseController(w.x.w).Flush()
}

// ReadFrom implements io.ReaderFrom. If src fails before its first byte, the handler may still
// report that.
func (w reading) ReadFrom(src io.Reader) (int64, error) {
	x := w.x
	if x.seen.status == 0 {
		x.RestoreHeaders(x.w.Header(), http.StatusOK)
	}
	n, err := x.w.(io.ReaderFrom).ReadFrom(src)
	if n > 0 {
		x.seen.sent(http.StatusOK)
	}
	return n, err
}

// Hijack implements http.Hijacker.
func (w reading) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.x.w.(http.Hijacker).Hijack()
	if err == nil {
		w.x.seen.sent(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// CloseNotify implements http.CloseNotifier.
func (w notifying) CloseNotify() <-chan bool { return w.x.w.(notifier).CloseNotify() }

// CloseNotify implements http.CloseNotifier.
func (w pushing) CloseNotify() <-chan bool { return w.x.w.(notifier).CloseNotify() }

// Push implements http.Pusher.
func (w pushing) Push(target string, opts *http.PushOptions) error {
	return w.x.w.(http.Pusher).Push(target, opts)
}
