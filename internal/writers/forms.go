package writers

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// Like returns own with those of Flush, Hijack and CloseNotify that the ResponseWriter below has. It
// allocates nothing. CloseNotify is that of the ResponseWriter below. ReadFrom is always there: io.Copy
// copies as well without it.
func Like(own *Own) http.ResponseWriter {
	below := (*own).Unwrap()
	_, flushes := below.(http.Flusher)
	_, hijacks := below.(http.Hijacker)
	_, notifies := below.(notifier)
	form := 0
	for i, has := range [...]bool{flushes, hijacks, notifies} {
		if has {
			form |= 1 << i
		}
	}
	return forms[form](w{own})
}

// forms has a ResponseWriter for each set of optional interfaces.
var forms = [...]func(w) http.ResponseWriter{
	func(w w) http.ResponseWriter { return w },
	func(w w) http.ResponseWriter { return wf{w} },
	func(w w) http.ResponseWriter { return wh{w} },
	func(w w) http.ResponseWriter { return wfh{wf{w}} },
	func(w w) http.ResponseWriter { return wn{w} },
	func(w w) http.ResponseWriter { return wfn{wf{w}} },
	func(w w) http.ResponseWriter { return whn{wh{w}} },
	func(w w) http.ResponseWriter { return wfhn{wfh{wf{w}}} },
}

// w is what every form has. The letters after it say what a form adds: f Flush, h Hijack and
// n CloseNotify. Each is one pointer, so that an interface of it takes no allocation. Their
// names are short, because the linker keeps that of every method of every form.
type w struct{ own *Own }

func (w w) Header() http.Header                   { return (*w.own).Header() }
func (w w) WriteHeader(status int)                { (*w.own).WriteHeader(status) }
func (w w) Write(p []byte) (int, error)           { return (*w.own).Write(p) }
func (w w) WriteString(s string) (int, error)     { return (*w.own).WriteString(s) }
func (w w) ReadFrom(src io.Reader) (int64, error) { return (*w.own).ReadFrom(src) }
func (w w) FlushError() error                     { return (*w.own).FlushError() }
func (w w) Unwrap() http.ResponseWriter           { return (*w.own).Unwrap() }

func (w w) hijack() (net.Conn, *bufio.ReadWriter, error) { return (*w.own).Hijack() }
func (w w) notify() <-chan bool                          { return w.Unwrap().(notifier).CloseNotify() }

type (
	wf   struct{ w }
	wh   struct{ w }
	wfh  struct{ wf }
	wn   struct{ w }
	wfn  struct{ wf }
	whn  struct{ wh }
	wfhn struct{ wfh }
)

func (w wf) Flush() { _ = w.FlushError() }

func (w wh) Hijack() (net.Conn, *bufio.ReadWriter, error)  { return w.hijack() }
func (w wfh) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w wn) CloseNotify() <-chan bool   { return w.notify() }
func (w wfn) CloseNotify() <-chan bool  { return w.notify() }
func (w whn) CloseNotify() <-chan bool  { return w.notify() }
func (w wfhn) CloseNotify() <-chan bool { return w.notify() }
