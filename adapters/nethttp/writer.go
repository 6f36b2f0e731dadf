package nethttp

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/headgate/headgate/internal/writers"
)

// Writer returns the ResponseWriter for the handler of an admitted request. It is w, unless Watches: then
// it is one on w that has Unwrap, ReadFrom, CloseNotify, Flush if w has it, and Hijack if an
// http.ResponseController can hijack w. A request that has waited has the whole WriteTimeout of its
// http.Server. An adapter calls Writer once, after WriteHeaders.
func (x *Exchange) Writer(w http.ResponseWriter) http.ResponseWriter {
	if x.extra != noExtra { // otherwise it has neither waited nor an id
		x.extendDeadline(w)
	}
	if !x.Watches() {
		return w
	}
	x.w = w
	return writers.Like(writer{x})
}

// wrote counts bytes of the response's body for Admission.Written. The method is that before the handler.
func (x *Exchange) wrote(n int64) {
	if x.request.Method != http.MethodHead { // the server drops the body
		x.written += n
	}
}

// writer passes a response on to the ResponseWriter of an exchange. It records the status and the
// bytes, and the answer to a request with an id. It is a writers.Own of one pointer, so that an
// interface of it takes no allocation.
type writer struct{ x *Exchange }

// Unwrap is for http.ResponseController.
func (w writer) Unwrap() http.ResponseWriter { return w.x.w }

// Header implements http.ResponseWriter.
func (w writer) Header() http.Header { return w.x.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (w writer) WriteHeader(status int) {
	informational := status < http.StatusOK && status != http.StatusSwitchingProtocols
	if !informational {
		w.prepare()
	}
	w.x.w.WriteHeader(status) // panics if there is no such status
	if w.x.sent == 0 && !informational {
		w.x.sent = int32(status)
	}
}

// prepare is called before the header may be sent. Middleware around the Guard, such as one that
// compresses, changes the headers then, so those of an answer are recorded before.
func (w writer) prepare() {
	if w.x.sent == 0 {
		w.x.attempt.begin(w.x.w.Header())
	}
}

// begin is called before a header with the status 200 is sent, if none was.
func (w writer) begin() {
	w.prepare()
	w.x.sent = cmp.Or(w.x.sent, http.StatusOK)
}

// Write implements http.ResponseWriter.
func (w writer) Write(p []byte) (int, error) {
	w.begin()
	n, err := w.x.w.Write(p)
	w.x.wrote(int64(n))
	if w.x.attempt != nil && w.x.attempt.write(p, err) {
		return len(p), nil
	}
	return n, err
}

// WriteString implements io.StringWriter.
func (w writer) WriteString(s string) (int, error) {
	if w.x.attempt != nil {
		return w.Write([]byte(s))
	}
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
	w.x.attempt.lose(lostStream)
	return writers.ErrorFlusher(w.x.w).FlushError()
}

// ReadFrom implements io.ReaderFrom. If src fails before its first byte, the handler may still
// report that. It records the bytes that an answer has room for; all others go the short way.
func (w writer) ReadFrom(src io.Reader) (n int64, err error) {
	x := w.x
	below, ok := x.w.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	if room := x.attempt.room(); room > 0 {
		if n, err = io.CopyN(struct{ io.Writer }{w}, src, room); errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	w.prepare()
	more, err := below.ReadFrom(src)
	if more > 0 && x.sent == 0 {
		x.sent = http.StatusOK
	}
	x.wrote(more)
	return n + more, err
}

// Hijack implements http.Hijacker.
func (w writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.x.w).Hijack()
	if err == nil {
		w.x.sent = cmp.Or(w.x.sent, http.StatusSwitchingProtocols)
		w.x.attempt.lose(lostStream)
	}
	return conn, rw, err
}
