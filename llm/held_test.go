package llm_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// stalls signals, behind the Meter's back, that a body is read for the second time: its first bytes
// have been kept.
type stalls struct {
	io.ReadCloser
	reads   int
	stalled chan<- struct{}
}

func (s *stalls) Read(p []byte) (int, error) {
	if s.reads++; s.reads == 2 {
		s.stalled <- struct{}{}
	}
	return s.ReadCloser.Read(p)
}

// stalling passes requests on to h and tells when their bodies stall.
func stalling(h http.Handler) (http.Handler, <-chan struct{}) {
	stalled := make(chan struct{}, 1)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &stalls{ReadCloser: r.Body, stalled: stalled}
		h.ServeHTTP(w, r)
	}), stalled
}

// connect sends the beginning of a request whose body is of a stated size.
func (r *rig) connect(size int, begin string) net.Conn {
	r.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nX-Tenant: acme\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", chatPath, size, begin)
	return conn
}

// A client that states a megabyte and sends a byte takes little more than its connection does.
func TestMemoryOfSlowBodies(t *testing.T) {
	const conns, most = 1000, 4 << 10
	r := newRig(t, core.UnitTokens, 1000, nil)
	live := func(h http.Handler) int64 {
		h, stalled := stalling(h)
		r.serve(h)
		before := footprint()
		for range conns {
			r.connect(1_000_000, "{")
			<-stalled
		}
		return (footprint() - before) / conns
	}
	bare := live(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
	}))
	metered := live(r.meter.Handler(http.NotFoundHandler()))
	t.Logf("%d bytes a connection without a Meter, %d with one", bare, metered)
	if metered-bare > most {
		t.Errorf("a connection takes %d bytes more with a Meter, at most %d are allowed",
			metered-bare, most)
	}
}

// Bodies that are read take no more than MaxBodies in sum, and give it back.
func TestBodiesAreBoundedInSum(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.MaxBody, cfg.MaxBodies = 1<<16, 1<<16
	})
	h := r.meter.Handler(http.HandlerFunc(ok))
	post := func(path string) *http.Response {
		q := httptest.NewRequest(http.MethodPost, path, strings.NewReader(`{"model":"m","max_tokens":1}`))
		q.Header.Set("X-Tenant", "acme")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, q)
		return w.Result()
	}
	for range 3 { // what a body has taken is there again
		body, client := io.Pipe()
		slow, done := httptest.NewRequest(http.MethodPost, chatPath, body), make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(httptest.NewRecorder(), slow)
		}()
		if _, err := io.WriteString(client, strings.Repeat(" ", 1<<15+1)); err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]struct {
			status int
			kind   string
		}{
			chatPath:       {http.StatusServiceUnavailable, "server_error"},
			"/v1/messages": {llm.StatusOverloaded, "overloaded_error"},
		} {
			response := post(path)
			after := response.Header.Get("Retry-After")
			if e := readAPIError(t, response); response.StatusCode != want.status || after != "1" ||
				e.Error.Type != want.kind {
				t.Errorf("%s: %d, Retry-After %q, %+v", path, response.StatusCode, after, e)
			}
		}
		client.CloseWithError(io.ErrUnexpectedEOF)
		<-done
		if response := post(chatPath); response.StatusCode != http.StatusOK {
			t.Errorf("after the body: %d", response.StatusCode)
		}
	}
}
