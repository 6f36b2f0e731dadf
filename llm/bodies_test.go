package llm_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// Bodies of one tenant that stall take no more of MaxBodies than they leave to others.
func TestATenantCannotFillMaxBodies(t *testing.T) {
	const size = 1 << 16
	for _, scoped := range []bool{false, true} {
		r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
			cfg.MaxBody, cfg.MaxBodies = size, 8*size
			if scoped {
				cfg.Guard.Scope, cfg.Budgets[0].Key = tenant, llm.ModelKey
			}
		})
		h := r.meter.Handler(http.HandlerFunc(ok))
		post := func(tenant string, body io.Reader) int {
			q := httptest.NewRequest(http.MethodPost, chatPath, body)
			q.Header.Set("X-Tenant", tenant)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, q)
			if w.Code == http.StatusServiceUnavailable {
				if e := readAPIError(t, w.Result()); e.Error.Type != "server_error" || w.Header().Get("Retry-After") != "1" {
					t.Errorf("%+v, %v", e, w.Header())
				}
			}
			return w.Code
		}
		whole := `{"model":"m","max_tokens":1,"x":"` + strings.Repeat("y", size/2) + `"}`
		stalled, ends := 0, make(chan int)
		var clients []*io.PipeWriter
		for ; stalled < 16; stalled++ {
			body, client := io.Pipe()
			refused := make(chan int, 1)
			go func() {
				code := post("acme", body)
				body.Close() // as a server does
				refused <- code
				ends <- code
			}()
			if _, err := io.WriteString(client, strings.Repeat(" ", size/2+1)); err != nil {
				if code := <-refused; code != http.StatusServiceUnavailable {
					t.Errorf("%d", code)
				}
				<-ends
				break
			}
			clients = append(clients, client)
		}
		if stalled < 2 || stalled > 5 {
			t.Errorf("%d bodies of a tenant fit", stalled)
		}
		if code := post("globex", strings.NewReader(whole)); code != http.StatusOK {
			t.Errorf("another tenant gets %d", code)
		}
		for _, c := range clients {
			c.CloseWithError(io.ErrUnexpectedEOF)
			<-ends
		}
		if code := post("acme", strings.NewReader(whole)); code != http.StatusOK {
			t.Errorf("after its bodies: %d", code)
		}
	}
}

// pipes is a net.Listener whose connections are pipes, so that a server runs in a synctest bubble.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { return nil }
func (p pipes) Addr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
}

// A body that comes too slowly is refused. One that comes fast enough may take its time, and so may
// the response.
func TestSlowBodiesAreCut(t *testing.T) {
	const piece = 16 << 10
	for _, c := range []struct {
		name    string
		pieces  int
		every   time.Duration
		timeout time.Duration // of the server
		status  int
	}{
		{"at once", 64, 0, 0, 200},
		{"at the rate", 64, time.Second, 0, 200},
		{"slowly", 64, 2 * time.Second, 0, 408},
		{"never", 2, time.Hour, 0, 408},
		{"later than the server wants", 64, time.Second, 20 * time.Second, 408},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				defer gate.Close(context.Background())
				meter := core.Must(llm.New(llm.Config{
					Guard: nethttp.Config{Gate: gate}, Budgets: []llm.Budget{{Policy: policy("budget", core.UnitTokens, 1e9), Key: tenant}},
				}))
				listener := make(pipes)
				server := &http.Server{ReadTimeout: c.timeout, ErrorLog: log.New(io.Discard, "", 0),
					Handler: meter.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
						_, _ = io.Copy(io.Discard, q.Body)
						select {
						case <-q.Context().Done():
							w.WriteHeader(499)
						case <-time.After(time.Hour):
						}
					}))}
				go server.Serve(listener)
				near, far := net.Pipe()
				listener <- far
				defer func() {
					close(listener)
					server.Close()
					near.Close()
					time.Sleep(2 * time.Hour) // until the goroutines of both sides have ended
				}()
				go func() {
					fmt.Fprintf(near, "POST %s HTTP/1.1\r\nHost: x\r\nX-Tenant: acme\r\nContent-Length: %d\r\n\r\n", chatPath, c.pieces*piece)
					text := `{"model":"m","max_tokens":1,"x":"` + strings.Repeat("y", c.pieces*piece)
					text = text[:c.pieces*piece-2] + `"}`
					for ; text != ""; text = text[piece:] {
						if _, err := io.WriteString(near, text[:piece]); err != nil {
							return
						}
						time.Sleep(c.every)
					}
				}()
				response, err := http.ReadResponse(bufio.NewReader(near), nil)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != c.status {
					t.Errorf("%d, want %d", response.StatusCode, c.status)
				}
			})
		})
	}
}

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

// A running stream keeps neither its prompt nor more than 20 KiB of heap and stacks beside what a
// reverse proxy without a Meter takes. Both sides of every connection are in this process.
func TestMemoryOfAStream(t *testing.T) {
	const streams, prompt, most = 100, 1 << 20, 20 << 10
	r := newRig(t, core.UnitTokens, 1<<40, func(cfg *llm.Config) { cfg.ChargeEvery = 1000 })
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	// live returns the memory that the streams of one gateway take.
	live := func(h http.Handler) int64 {
		goOn := make(chan struct{})
		r.answer = events(3, func(w http.ResponseWriter, q *http.Request) {
			<-goOn
			chat(7, 11)(w, q)
		})
		r.serve(h)
		body := `{"model":"m","stream":true,"prompt":"` + strings.Repeat("a", prompt) + `"}`
		before := footprint()
		var open []io.ReadCloser
		for range streams {
			response, err := client.Do(r.request(chatPath, body))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(response.Body, make([]byte, 3*len(word))); err != nil {
				t.Fatal(err)
			}
			open = append(open, response.Body)
		}
		r.mu.Lock()
		r.asked = nil // the bodies that the upstream has read
		r.mu.Unlock()
		taken := footprint() - before
		close(goOn)
		for _, b := range open {
			_, _ = io.Copy(io.Discard, b)
			b.Close()
		}
		return taken / streams
	}
	proxy := proxyTo(t, r.upstream)
	live(proxy) // fills the pools
	more := int64(math.MaxInt64)
	for range 5 { // where the machine stalls, others send the calls of a stream, and stacks grow deeper
		bare, metered := live(proxy), live(r.meter.Handler(proxy))
		t.Logf("%d bytes a stream without a Meter, %d with one", bare, metered)
		if more = min(more, metered-bare); more <= most {
			return
		}
	}
	t.Errorf("a stream takes %d bytes more with a Meter, at most %d are allowed", more, most)
}

// footprint returns the live heap and the stacks.
func footprint() int64 {
	runtime.GC()
	runtime.GC() // what pools dropped in the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
