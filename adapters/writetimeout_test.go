package adapters_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// pipes is a net.Listener whose connections are pipes, so that a server runs in a synctest bubble.
type pipes struct {
	conns chan net.Conn
	done  context.Context
	close context.CancelFunc
}

func newPipes() *pipes {
	done, cancel := context.WithCancel(context.Background())
	return &pipes{make(chan net.Conn), done, cancel}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done.Done():
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.close(); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	server, client := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// waiting is a way in which a request waits for another one that runs.
type waiting struct {
	name    string
	refusal int // the status if the wait is too long
	build   func(t *testing.T, gate *core.Gate, every time.Duration) nethttp.Admitter
}

var waitings = []waiting{
	{"Slot.MaxWait", 429, func(t *testing.T, gate *core.Gate, _ time.Duration) nethttp.Admitter {
		running := core.Must(semaphore.New(gate, semaphore.Config{Name: "running"}))
		return core.Must(nethttp.NewGuard(nethttp.Config{Slot: &nethttp.Slot{
			Semaphore: running, MaxWait: time.Minute,
			Caps: []nethttp.Cap{{Key: keyfunc.Must(keyfunc.Static("k")), Limit: 1}},
		}}))
	}},
	{"MaxDelay", 429, func(t *testing.T, gate *core.Gate, every time.Duration) nethttp.Admitter {
		p := core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "p", Algorithm: core.TokenBucket{Rate: 1, Per: every, Burst: 1},
		}))
		return core.Must(nethttp.NewGuard(nethttp.Config{
			Gate: gate, MaxDelay: time.Minute,
			Rules: []nethttp.Rule{{Policy: p, Key: keyfunc.Must(keyfunc.Static("k"))}},
		}))
	}},
	{"ReplayConfig.MaxWait", 409, func(t *testing.T, gate *core.Gate, _ time.Duration) nethttp.Admitter {
		ids := core.Must(once.New(gate, once.Config{Name: "ids", Window: time.Hour}))
		return core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
			Once: ids, ID: keyfunc.Must(keyfunc.Static("k")), MaxWait: time.Minute,
		}))
	}},
}

// A request that waits beside a WriteTimeout is refused in time, or its handler has the whole
// WriteTimeout.
func TestWaitBesideWriteTimeout(t *testing.T) {
	const writeTimeout, work = 10 * time.Second, 8 * time.Second
	for _, fw := range frameworks {
		for _, w := range waitings {
			for _, http2 := range []bool{false, true} {
				for hold, status := range map[time.Duration]int{5 * time.Second: 200, 9 * time.Second: w.refusal} {
					name := strings.Join([]string{fw.test(), w.name, hold.String()}, "/")
					if http2 {
						name += "/HTTP2"
					}
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							gate := core.Must(core.NewMemory(core.Config{}))
							var entered atomic.Int64
							h := fw.around(same, func(rw http.ResponseWriter, _ *http.Request) {
								if entered.Add(1) == 1 {
									time.Sleep(hold)
									rw.WriteHeader(http.StatusInternalServerError) // its id is free again
									return
								}
								time.Sleep(work)
								_, _ = io.WriteString(rw, "done")
							}, w.build(t, gate, hold))
							client, stop := serveTimed(h, writeTimeout, http2)
							defer func() {
								stop()
								time.Sleep(time.Minute) // a handler may outlive its stream
								if err := gate.Close(context.Background()); err != nil {
									t.Error(err)
								}
							}()
							first := make(chan string, 1)
							go func() { _, body := client(); first <- body }()
							synctest.Wait()
							got, body := client()
							if got != status || got == 200 && body != "done" {
								t.Errorf("%d, %q, want %d", got, body, status)
							}
							<-first
							if n := entered.Load(); n == 2 != (status == 200) {
								t.Errorf("the handler ran %d times", n)
							}
						})
					})
				}
			}
		}
	}
}

// serveTimed serves h with a WriteTimeout, over TLS if it is HTTP/2. The client returns the status and
// the body of a response, or 0 and an error.
func serveTimed(h http.Handler, timeout time.Duration, http2 bool) (client func() (int, string), stop func()) {
	listener := newPipes()
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener, server.EnableHTTP2 = listener, http2
	server.Config.WriteTimeout = timeout
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	transport := server.Client().Transport.(*http.Transport)
	transport.DialContext = listener.dial
	return func() (int, string) {
		r, err := server.Client().Post(server.URL+"/users/1", "", nil)
		if err != nil {
			return 0, err.Error()
		}
		body, err := io.ReadAll(r.Body)
		return r.StatusCode, string(body) + text(errors.Join(err, r.Body.Close()))
	}, server.Close
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// deadlines counts the calls of SetWriteDeadline.
type deadlines struct {
	*httptest.ResponseRecorder
	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error { d.set++; return nil }

// A request that does not wait keeps the deadline of its connection.
func TestNoWaitLeavesTheDeadline(t *testing.T) {
	for _, fw := range frameworks {
		for _, w := range waitings {
			t.Run(fw.test()+"/"+w.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gate := core.Must(core.NewMemory(core.Config{}))
					h := fw.around(same, ok, w.build(t, gate, time.Second))
					r := httptest.NewRequest(http.MethodPost, "/users/1", nil)
					server := &http.Server{WriteTimeout: 10 * time.Second}
					rw := &deadlines{ResponseRecorder: httptest.NewRecorder()}
					h.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, server)))
					if rw.Code != 200 || rw.set != 0 {
						t.Errorf("status %d, %d deadlines", rw.Code, rw.set)
					}
					if err := gate.Close(context.Background()); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
