package writers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
)

var errOwn, errBelow = errors.New("own"), errors.New("below")

// own is an Own that tells its calls from those of the ResponseWriter below.
type own struct{ http.ResponseWriter }

func (o own) Unwrap() http.ResponseWriter                { return o.ResponseWriter }
func (own) FlushError() error                            { return errOwn }
func (own) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errOwn }
func (own) ReadFrom(io.Reader) (int64, error)            { return 0, errOwn }
func (own) WriteString(string) (int, error)              { return 0, errOwn }

// below has each of the methods of which Like asks.
type below struct{}

func (below) Flush()                                       {}
func (below) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, errBelow }

var closed = make(chan bool)

// notifies has CloseNotify.
type notifies struct{ http.ResponseWriter }

func (notifies) CloseNotify() <-chan bool { return closed }

// unwraps has Unwrap only.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// has says which of Flush and Hijack a ResponseWriter has.
func has(w http.ResponseWriter) (form int) {
	_, flushes := w.(http.Flusher)
	_, hijacks := w.(http.Hijacker)
	for i, has := range []bool{flushes, hijacks} {
		if has {
			form |= 1 << i
		}
	}
	return form
}

func TestLike(t *testing.T) {
	bare := struct{ http.ResponseWriter }{httptest.NewRecorder()}
	hijacked := struct {
		http.ResponseWriter
		http.Hijacker
	}{bare, below{}}
	for _, c := range []struct {
		w    http.ResponseWriter
		want int
	}{
		{bare, 0}, {httptest.NewRecorder(), 1}, {hijacked, 2}, {notifies{bare}, 0},
		{struct {
			http.ResponseWriter
			below
		}{bare, below{}}, 3},
		{unwraps{hijacked}, 2}, {unwraps{unwraps{bare}}, 0}, {unwraps{Like(own{hijacked})}, 2},
	} {
		w, o := c.w, &own{c.w}
		var got http.ResponseWriter
		gatetest.Equal(t, testing.AllocsPerRun(100, func() { got = Like(o) }), 0, "%T: allocations", w)
		gatetest.Equal(t, has(got), c.want, "what is like %T has", w)
		check(t, got, w)
	}
}

func TestFlushes(t *testing.T) {
	recorder := httptest.NewRecorder()
	bare := struct{ http.ResponseWriter }{recorder}
	above := func(w http.ResponseWriter) http.ResponseWriter {
		return Like(own{w})
	}
	type tells interface{ FlushError() error }
	only := struct {
		http.ResponseWriter
		tells
	}{bare, own{}}
	for _, c := range []struct {
		w    http.ResponseWriter
		want bool
	}{
		{recorder, true}, {above(above(recorder)), true}, {above(only), true},
		{bare, false}, {above(above(bare)), false},
	} {
		gatetest.Equal(t, Flushes(c.w), c.want, "%T", c.w)
	}
}

// check calls what w has, which goes to own.
func check(t *testing.T, w, below http.ResponseWriter) {
	t.Helper()
	if u, ok := w.(interface{ Unwrap() http.ResponseWriter }); !ok || u.Unwrap() != below {
		t.Errorf("%T does not unwrap to the one below", w)
	}
	gatetest.Is(t, http.NewResponseController(w).Flush(), errOwn, "%T: a ResponseController flushes with", w)
	gatetest.Is(t, gatetest.Err(io.WriteString(w, "")), errOwn, "%T: WriteString returns", w)
	if h, ok := w.(http.Hijacker); ok {
		if _, _, err := h.Hijack(); !errors.Is(err, errOwn) {
			t.Errorf("%T: Hijack returns %v", w, err)
		}
	}
	gatetest.Is(t, gatetest.Err(w.(io.ReaderFrom).ReadFrom(nil)), errOwn, "%T: ReadFrom returns", w)
	if _, ok := below.(notifier); ok != (w.(notifier).CloseNotify() == closed) {
		t.Errorf("%T: CloseNotify is not that of the one below", w)
	}
}
