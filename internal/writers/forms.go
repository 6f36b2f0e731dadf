package writers

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Like returns own with those of Flush and Hijack that the ResponseWriter below has. It allocates nothing.
// ReadFrom is always there: io.Copy copies as well without it. So is CloseNotify, which nobody calls to
// learn what a ResponseWriter can do.
func Like(own *Own) http.ResponseWriter {
	below := (*own).Unwrap()
	_, flushes := below.(http.Flusher)
	_, hijacks := below.(http.Hijacker)
	switch w := (w{own}); {
	case flushes && hijacks:
		return wfh{wf{w}}
	case flushes:
		return wf{w}
	case hijacks:
		return wh{w}
	default:
		return w
	}
}

// w is what every form has. The letters after it say what a form adds: f Flush and h Hijack. Each is one
// pointer, so that an interface of it takes no allocation. Their names are short, because the linker keeps
// that of every method of every form.
type w struct{ own *Own }

func (w w) Header() http.Header                   { return (*w.own).Header() }
func (w w) WriteHeader(status int)                { (*w.own).WriteHeader(status) }
func (w w) Write(p []byte) (int, error)           { return (*w.own).Write(p) }
func (w w) WriteString(s string) (int, error)     { return (*w.own).WriteString(s) }
func (w w) ReadFrom(src io.Reader) (int64, error) { return (*w.own).ReadFrom(src) }
func (w w) FlushError() error                     { return (*w.own).FlushError() }
func (w w) Unwrap() http.ResponseWriter           { return (*w.own).Unwrap() }

// CloseNotify is that of the ResponseWriter below. A channel that is nil tells nothing.
func (w w) CloseNotify() <-chan bool {
	if n, ok := w.Unwrap().(notifier); ok {
		return n.CloseNotify()
	}
	return nil
}

type (
	wf  struct{ w }
	wh  struct{ w }
	wfh struct{ wf }
)

func (w wf) Flush() { _ = w.FlushError() }

func (w wh) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return (*w.own).Hijack() }
func (w wfh) Hijack() (net.Conn, *bufio.ReadWriter, error) { return (*w.own).Hijack() }
