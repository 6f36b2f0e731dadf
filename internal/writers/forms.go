package writers

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Like returns own with Flush if the ResponseWriter below has it, and with Hijack if an
// http.ResponseController can hijack that one: it would pass an own without Hijack. It allocates nothing if
// own is one pointer. ReadFrom is always there: io.Copy copies as well without it. So is CloseNotify, which
// nobody calls to learn what a ResponseWriter can do.
func Like[O Own](own O) http.ResponseWriter {
	below := own.Unwrap()
	_, flushes := below.(http.Flusher)
	hijacks := canHijack(below)
	switch w := (w[O]{own}); {
	case flushes && hijacks:
		return wfh[O]{wf[O]{w}}
	case flushes:
		return wf[O]{w}
	case hijacks:
		return wh[O]{w}
	default:
		return w
	}
}

// w is what every form has. The letters after it say what a form adds: f Flush and h Hijack. Their names are
// short, because the linker keeps that of every method of every form.
type w[O Own] struct{ own O }

func (w w[O]) Header() http.Header                   { return w.own.Header() }
func (w w[O]) WriteHeader(status int)                { w.own.WriteHeader(status) }
func (w w[O]) Write(p []byte) (int, error)           { return w.own.Write(p) }
func (w w[O]) WriteString(s string) (int, error)     { return w.own.WriteString(s) }
func (w w[O]) ReadFrom(src io.Reader) (int64, error) { return w.own.ReadFrom(src) }
func (w w[O]) FlushError() error                     { return w.own.FlushError() }
func (w w[O]) Unwrap() http.ResponseWriter           { return w.own.Unwrap() }

// CloseNotify is that of the ResponseWriter below. A channel that is nil tells nothing.
func (w w[O]) CloseNotify() <-chan bool {
	if n, ok := w.Unwrap().(notifier); ok {
		return n.CloseNotify()
	}
	return nil
}

type (
	wf[O Own]  struct{ w[O] }
	wh[O Own]  struct{ w[O] }
	wfh[O Own] struct{ wf[O] }
)

func (w wf[O]) Flush() { _ = w.FlushError() }

func (w wh[O]) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return w.own.Hijack() }
func (w wfh[O]) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.own.Hijack() }
