package llm

import (
	"bufio"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/writers"
	"github.com/headgate/headgate/llm/internal/wire"
)

// writer passes a response through a wire.Tap.
type writer struct {
	http.ResponseWriter
	request *http.Request // of the handler
	x       *call
	limits  http.Header // of the guards around the handler, and ModelHeader
}

func newWriter(w http.ResponseWriter, r *http.Request, x *call) *writer {
	limits := make(http.Header)
	for name, values := range w.Header() {
		if statesLimits(name) || name == ModelHeader {
			limits[name] = slices.Clone(values)
		}
	}
	return &writer{ResponseWriter: w, request: r, x: x, limits: limits}
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	x := w.x
	if x.status != 0 {
		return
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	x.status, x.late = status, w.request.Context().Err() != nil
	h := w.Header()
	// A reverse proxy has added the headers of its server, whose limits are those of the gateway.
	maps.DeleteFunc(h, func(name string, _ []string) bool { return statesLimits(name) })
	maps.Copy(h, w.limits)
	if status/100 == 2 {
		x.tap = wire.NewTap(&x.request, h, x.hides)
		x.empty = true
		streams := x.request.Stream || x.tap.Streams()
		if x.tap.Hides() || streams && x.meter.cfg.Overrun == OverrunEnd {
			h.Del("Content-Length")
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// statesLimits reports whether a header states limits, such as X-Ratelimit-Limit-Tokens,
// Anthropic-Ratelimit-Tokens-Limit, X-Ratelimitbysize-Limit-Minute and Ratelimit.
func statesLimits(name string) bool { return strings.Contains(name, "Ratelimit") }

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	x := w.x
	if x.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case x.ended:
		return len(p), nil
	case x.tap == nil:
		return w.ResponseWriter.Write(p)
	}
	x.empty = x.empty && len(p) == 0
	n, err := x.tap.Write(p, x.ending != "", w.out())
	if err != nil {
		if x.meter.cfg.Abort != AbortDrain {
			return 0, err
		}
		x.gone = true
	}
	x.chargeRunning()
	if x.ending == "" {
		return len(p), nil
	}
	switch o := x.tap.Response(); {
	case o.Answered(): // a whole answer goes on to its end
		x.ending = ""
		rest, err := w.Write(p[n:])
		return n + rest, err
	case x.tap.Between():
		w.end(x.tap.ErrorEvent(x.ending, endings[x.ending]))
	}
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (w *writer) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// ReadFrom implements io.ReaderFrom.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{w}, src)
}

// out returns a func that passes bytes on to the client, or nil.
func (w *writer) out() func([]byte) error {
	if w.x.gone {
		return nil
	}
	return func(p []byte) error {
		_, err := w.ResponseWriter.Write(p)
		return err
	}
}

// end ends the response with the last bytes, and stops the handler.
func (w *writer) end(last []byte) {
	w.x.ended = true
	if out := w.out(); out != nil && len(last) > 0 && out(last) == nil {
		_ = w.FlushError() // a later Write reports it
	}
	w.x.stop(errEnded)
}

// FlushError is for http.ResponseController. If nothing below can flush, no response begins: the
// handler may still report that.
func (w *writer) FlushError() error {
	if w.x.status == 0 {
		if !writers.Flushes(w.ResponseWriter) {
			return http.ErrNotSupported
		}
		w.WriteHeader(http.StatusOK)
	}
	if w.x.gone {
		return nil
	}
	return writers.ErrorFlusher(w.ResponseWriter).FlushError()
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// close ends the tap. It passes on what the tap holds back if the handler has returned.
func (w *writer) close() {
	t, returned := w.x.tap, !w.x.aborted
	if t == nil {
		return
	}
	var out func([]byte) error
	if returned && !w.x.ended {
		out = w.out()
	}
	whole := returned && !w.x.ended && w.request.Context().Err() == nil
	_ = t.Close(whole, out) // the client may be gone
}
