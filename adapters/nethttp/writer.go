package nethttp

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"net/http"

	"github.com/headgate/headgate/internal/writers"
)

// Writer returns the ResponseWriter for the handler of an admitted request, one on w that keeps
// headers as restoreHeaders describes. It has Unwrap, ReadFrom, CloseNotify, and those of Flush and
// Hijack that w has. If there is nothing to keep and nothing depends on the response, it is w.
// A request that has waited has the whole WriteTimeout of its http.Server. An adapter calls Writer once,
// after WriteHeaders.
func (x *Exchange) Writer(w http.ResponseWriter) http.ResponseWriter {
	if x.extra != noExtra { // otherwise it has neither waited nor an id
		x.extendDeadline(w)
	}
	if (x.skipped || len(w.Header()) == 0) && !x.Watches() {
		return w
	}
	x.w = w
	if x.attempt != nil {
		return writers.Like(recorder{writer{x}})
	}
	return writers.Like(writer{x})
}

// wrote counts bytes of the response's body for Admission.Written. The method is that before the handler.
func (x *Exchange) wrote(n int64) {
	if x.request.Method != http.MethodHead { // the server drops the body
		x.written += n
	}
}

// writer passes a response on to the ResponseWriter of an exchange. It records the status and the
// bytes, and keeps the headers. It is a writers.Own of one pointer, so that an interface of it takes no
// allocation.
type writer struct{ x *Exchange }

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.x.w }

// Header implements http.ResponseWriter.
func (w writer) Header() http.Header {
	h := w.x.w.Header()
	w.x.keepHeaders(h)
	if w.x.sent == http.StatusSwitchingProtocols { // a proxy writes them to what it hijacked
		w.x.restoreHeaders(h, http.StatusSwitchingProtocols)
	}
	return h
}

// WriteHeader implements http.ResponseWriter.
func (w writer) WriteHeader(status int) {
	if w.x.sent == 0 {
		w.x.restoreHeaders(w.x.w.Header(), status)
	}
	w.x.w.WriteHeader(status) // panics if there is no such status
	if w.x.sent == 0 && !informational(status) {
		w.x.sent = int32(status)
	}
}

// begin is called before a header with the status 200 may be sent.
func (w writer) begin() {
	if w.x.sent == 0 {
		w.x.restoreHeaders(w.x.w.Header(), http.StatusOK)
		w.x.sent = http.StatusOK
	}
}

// Write implements http.ResponseWriter.
func (w writer) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.x.w.Write(p)
	w.x.wrote(int64(n))
	return n, err
}

// WriteString implements io.StringWriter.
func (w writer) WriteString(s string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.x.w, s)
	w.x.wrote(int64(n))
	return n, err
}

// FlushError is for http.ResponseController. If nothing below can flush, no response begins: the
// handler may still report that.
func (w writer) FlushError() error {
	if w.x.sent == 0 && !writers.Flushes(w.x.w) {
		return http.ErrNotSupported
	}
	w.begin()
	return writers.ErrorFlusher(w.x.w).FlushError()
}

// ReadFrom implements io.ReaderFrom. If src fails before its first byte, the handler may still
// report that.
func (w writer) ReadFrom(src io.Reader) (int64, error) {
	x := w.x
	below, ok := x.w.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	if x.sent == 0 {
		x.restoreHeaders(x.w.Header(), http.StatusOK)
	}
	n, err := below.ReadFrom(src)
	if n > 0 && x.sent == 0 {
		x.sent = http.StatusOK
	}
	x.wrote(n)
	return n, err
}

// Hijack implements http.Hijacker.
func (w writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.x.w.(http.Hijacker).Hijack()
	if err == nil {
		w.x.sent = cmp.Or(w.x.sent, http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
