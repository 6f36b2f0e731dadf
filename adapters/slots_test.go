package adapters_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// free waits until no slot is held. A handler may return after its client has the response.
func (f *fixture) free(s *semaphore.Semaphore) {
	f.t.Helper()
	key := core.Must(core.NewKey("127.0.0.1"))
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for {
		holders, waiting, err := s.Holders(ctx, key)
		if err == nil && len(holders) == 0 && waiting == 0 {
			return
		}
		if err != nil || ctx.Err() != nil {
			f.t.Fatalf("%d hold, %d wait, %v", len(holders), waiting, err)
		}
	}
}

// A slot is released once however its request ends.
func TestSlotsAreReleased(t *testing.T) {
	stream := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "data: 1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	get := func(f *fixture, path string) { f.ask("POST " + path) }
	ends := map[string]struct {
		handler http.HandlerFunc
		call    func(f *fixture, path string)
	}{
		"returns":  {func(http.ResponseWriter, *http.Request) {}, get},
		"fails":    {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", http.StatusBadGateway) }, get},
		"panics":   {func(http.ResponseWriter, *http.Request) { panic("handler's own") }, get},
		"aborts":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, get},
		"detaches": {func(_ http.ResponseWriter, r *http.Request) { detached(r) }, get},
		"client leaves": {stream, func(f *fixture, path string) {
			ctx, cancel := context.WithCancel(f.t.Context())
			defer cancel()
			r := core.Must(http.NewRequestWithContext(ctx, "POST", f.server.URL+path, nil))
			response := gatetest.Must(f.server.Client().Do(r))(f.t)
			defer response.Body.Close()
			if line, err := bufio.NewReader(response.Body).ReadString('\n'); line != "data: 1\n" {
				f.t.Errorf("%q, %v", line, err)
			}
		}},
		"socket closes": {func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Errorf("accept: %v", err)
				return
			}
			defer conn.CloseNow()
			_, _, _ = conn.Read(context.WithoutCancel(r.Context()))
		}, func(f *fixture, path string) {
			ctx, cancel := context.WithTimeout(f.t.Context(), patience)
			defer cancel()
			conn, _, err := websocket.Dial(ctx, f.server.URL+path, nil)
			gatetest.NoError(f.t, err)
			_ = conn.CloseNow()
		}},
		"times out": {func(w http.ResponseWriter, r *http.Request) {
			http.TimeoutHandler(http.HandlerFunc(stream), time.Nanosecond, "").ServeHTTP(w, r)
		}, get},
	}
	each(t, func(t *testing.T, fw framework) {
		for name, end := range ends {
			t.Run(name, func(t *testing.T) {
				f := newFixture(t)
				cfg := f.perRoute()
				streams(f, &cfg)
				guard := f.guard(cfg)
				f.serve(fw.build, &app{root: guard, routes: []route{{"POST", "/api/end", end.handler}, {"GET", "/api/end", end.handler}}}, false)
				for range 2 {
					end.call(f, "/api/end")
					f.free(cfg.Slot.Semaphore)
				}
			})
		}
	})
}

// detached starts work that outlives the request and takes its slot along.
func detached(r *http.Request) {
	l := nethttp.LeaseFromContext(r.Context()).Detach()
	if l == nil {
		panic("no lease")
	}
	go func() { _ = l.Release(context.Background()) }()
}

// While a request runs, another one of the same client is refused and spends nothing.
func TestSlotsAreHeld(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		cfg := f.perRoute()
		streams(f, &cfg)
		entered, leave := make(chan struct{}), make(chan struct{})
		f.serve(fw.build, &app{root: f.guard(cfg), routes: []route{{"GET", "/stream", func(http.ResponseWriter, *http.Request) {
			entered <- struct{}{}
			<-leave
		}}}}, false)
		var first sync.WaitGroup
		first.Go(func() {
			gatetest.Equal(t, f.ask("GET /stream").Status, 200, "the first")
		})
		<-entered
		second := f.ask("GET /stream")
		if second.Status != 429 || second.Header.Get("Retry-After") == "" || second.Header.Get("RateLimit") != `"address";r=99;t=1, "route";r=2;t=20` {
			t.Errorf("the second: %d, %v", second.Status, second.Header)
		}
		if !fw.json && !strings.Contains(second.Body, `All 1 concurrent requests of policy \"streams\" are in use.`) {
			t.Errorf("the second: %s", second.Body)
		}
		close(leave)
		first.Wait()
		f.free(cfg.Slot.Semaphore)
	})
}

// panicking is a Dialect that panics if its status is that of the admission.
type panicking struct {
	nethttp.Draft11
	status int
}

func (d panicking) WriteHeaders(h http.Header, a *nethttp.Admission) {
	d.Draft11.WriteHeaders(h, a)
	if a.Status() == d.status {
		panic(http.ErrAbortHandler)
	}
}

// What a request holds is given back if a func of the configuration panics, as one that closes the
// connection by http.ErrAbortHandler.
func TestPanicsOfTheConfigurationHoldNothing(t *testing.T) {
	for name, change := range map[string]func(*nethttp.Config, *nethttp.ReplayConfig){
		"Dialect, admitted": func(c *nethttp.Config, _ *nethttp.ReplayConfig) { c.Dialect = panicking{status: 0} },
		"Dialect, refused":  func(c *nethttp.Config, _ *nethttp.ReplayConfig) { c.Dialect = panicking{status: 409} },
		"Refuse": func(c *nethttp.Config, _ *nethttp.ReplayConfig) {
			c.Refuse = func(http.ResponseWriter, *http.Request, *nethttp.Admission) { panic(http.ErrAbortHandler) }
		},
		"Settle": func(c *nethttp.Config, _ *nethttp.ReplayConfig) {
			c.Rules[0].Settle = func(*http.Request, int, int64) int64 { panic("settle") }
		},
		"Skip": func(_ *nethttp.Config, c *nethttp.ReplayConfig) {
			c.Skip = func(*http.Request) bool { panic("skip") }
		},
		"ID": func(_ *nethttp.Config, c *nethttp.ReplayConfig) {
			c.ID = func(*http.Request) (string, error) { panic("id") }
		},
		"Observe": func(c *nethttp.Config, _ *nethttp.ReplayConfig) {
			c.Observe = func(context.Context, core.Event) { panic("observe") }
		},
		"Succeeded": func(_ *nethttp.Config, c *nethttp.ReplayConfig) {
			c.Succeeded = func(*http.Request, int) bool { panic("succeeded") }
		},
	} {
		for _, fw := range frameworks {
			t.Run(fw.test()+"/"+name, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				running := core.Must(semaphore.New(gate, semaphore.Config{Name: "running"}))
				key := keyfunc.Must(keyfunc.Static("k"))
				cfg := nethttp.Config{
					Gate: gate, Rules: []nethttp.Rule{ruleOf("p", core.PerHour(100), false)},
					Slot: &nethttp.Slot{Semaphore: running, Caps: []nethttp.Cap{{Key: key, Limit: 1}}},
				}
				replay := nethttp.ReplayConfig{ID: key, Once: core.Must(once.New(gate, once.Config{Name: "o", Window: time.Hour}))}
				change(&cfg, &replay)
				g := core.Must(nethttp.NewReplay(core.Must(nethttp.NewGuard(cfg)), replay))
				h := fw.around(same, ok, g)
				for range 2 {
					func() {
						defer func() { _ = recover() }()
						h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/users/1", nil))
					}()
				}
				for _, s := range []string{"running", "o.once"} {
					holders, _, err := core.Must(semaphore.New(gate, semaphore.Config{Name: s})).
						Holders(t.Context(), core.Must(core.NewKey("k")))
					if err != nil || len(holders) > 0 {
						t.Fatalf("%s: %d hold, %v", s, len(holders), err)
					}
				}
				gatetest.Worked(t, gate.Close(t.Context()))
			})
		}
	}
}

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
								gatetest.Worked(t, gate.Close(context.Background()))
							}()
							first := make(chan string, 1)
							go func() { _, body := client(); first <- body }()
							synctest.Wait()
							got, body := client()
							if got != status || got == 200 && body != "done" {
								t.Errorf("%d, %q, want %d", got, body, status)
							}
							<-first
							n := entered.Load()
							gatetest.Equal(t, n == 2, status == 200, "the handler ran %d times: twice", n)
						})
					})
				}
			}
		}
	}
}

// slowly are requests whose body is read before they wait.
var slowly = map[string]func(*core.Gate) nethttp.Admitter{
	"CostBody": func(gate *core.Gate) nethttp.Admitter {
		rules := []nethttp.Rule{ruleOf("bytes", core.PerHour(100), true)}
		return core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: rules, Slot: queue(gate)}))
	},
	"Replay": func(gate *core.Gate) nethttp.Admitter {
		ids := core.Must(once.New(gate, once.Config{Name: "ids", Window: time.Hour}))
		return core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
			Once: ids, ID: keyfunc.Must(keyfunc.Static("k")), MaxWait: time.Minute,
		}))
	},
	"CostBody before a Replay": func(gate *core.Gate) nethttp.Admitter {
		rules := []nethttp.Rule{ruleOf("bytes", core.PerHour(100), true)}
		guard := core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Rules: rules}))
		ids := core.Must(once.New(gate, once.Config{Name: "ids", Window: time.Hour}))
		return core.Must(nethttp.NewReplay(guard, nethttp.ReplayConfig{
			Once: ids, ID: keyfunc.Must(keyfunc.Static("k")), MaxWait: time.Minute,
		}))
	},
}

// The time in which a slow client sends its body counts as part of the wait: the refusal comes before the
// WriteTimeout.
func TestSlowBodyBesideWriteTimeout(t *testing.T) {
	for name, build := range slowly {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := core.Must(core.NewMemory(core.Config{}))
				h := build(gate).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Minute) }))
				listener := newPipes()
				server := httptest.NewUnstartedServer(h)
				_ = server.Listener.Close()
				server.Listener = listener
				server.Config.WriteTimeout = 10 * time.Second
				server.Start()
				defer func() {
					server.Close()
					gatetest.Worked(t, gate.Close(context.Background()))
				}()
				begin := func() net.Conn {
					conn := gatetest.Must(listener.dial(t.Context(), "", ""))(t)
					gatetest.Worked(t, gatetest.Err(io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n")))
					return conn
				}
				first := begin()
				defer first.Close()
				gatetest.Worked(t, gatetest.Err(io.WriteString(first, "abc")))
				synctest.Wait() // it runs
				second := begin()
				defer second.Close()
				time.Sleep(5 * time.Second)
				gatetest.Worked(t, gatetest.Err(io.WriteString(second, "abc")))
				r, err := http.ReadResponse(bufio.NewReader(second), nil)
				if err != nil || r.StatusCode != http.StatusTooManyRequests && r.StatusCode != http.StatusConflict {
					t.Errorf("%v, %v", r, err)
				}
			})
		})
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
					gatetest.Worked(t, gate.Close(context.Background()))
				})
			})
		}
	}
}

// expecting is a Guard in front of a client that sends its body only once it is asked for it.
type expecting struct {
	name  string
	asked bool // the client is asked for the body
	last  int  // the status of its second request
	cfg   func(*core.Gate) nethttp.Config
}

// ruleOf returns a rule whose cost is 1, or the length of the body.
func ruleOf(name string, limit core.Algorithm, body bool) nethttp.Rule {
	rule := nethttp.Rule{
		Policy: core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit})),
		Key:    keyfunc.Must(keyfunc.Static("k")),
	}
	if body {
		rule.CostBody = 10
		rule.Cost = func(r *http.Request) int64 {
			n, _ := io.Copy(io.Discard, r.Body)
			return n
		}
	}
	return rule
}

func queue(gate *core.Gate) *nethttp.Slot {
	return &nethttp.Slot{
		Semaphore: core.Must(semaphore.New(gate, semaphore.Config{Name: "running"})),
		MaxWait:   time.Minute,
		Caps:      []nethttp.Cap{{Key: keyfunc.Must(keyfunc.Static("k")), Limit: 1}},
	}
}

var expectings = []expecting{
	{"a spent limit and a queue", false, 429, func(gate *core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerHour(1), false)}, Slot: queue(gate), BufferBody: 10}
	}},
	{"a spent limit and a delay that does not suffice", false, 429, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerHour(1), false)}, MaxDelay: time.Minute, BufferBody: 10}
	}},
	{"a spent window that ends within the delay", false, 429, func(*core.Gate) nethttp.Config {
		window := core.FixedWindow{Limit: 1, Window: time.Minute}
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", window, false)}, MaxDelay: time.Hour, BufferBody: 10}
	}},
	{"a spent limit behind a cost of the body", false, 429, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("bytes", core.PerHour(100), true), ruleOf("p", core.PerHour(1), false)}}
	}},
	{"a block", false, 429, func(*core.Gate) nethttp.Config {
		bans := core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "bans", Algorithm: core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}}))
		return nethttp.Config{
			Rules: []nethttp.Rule{ruleOf("bytes", core.PerHour(100), true)},
			Blocks: []nethttp.BlockRule{{
				Policy: bans, Key: keyfunc.Must(keyfunc.Static("k")), Strikes: nethttp.StrikeOn(http.StatusOK)}},
		}
	}},
	{"a delay that suffices", true, 200, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerMinute(1), false)}, MaxDelay: time.Hour, BufferBody: 10}
	}},
	{"a cost of the body", true, 429, func(*core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("bytes", core.PerHour(3), true), ruleOf("p", core.PerHour(2), false)}}
	}},
	{"room", true, 200, func(gate *core.Gate) nethttp.Config {
		return nethttp.Config{Rules: []nethttp.Rule{ruleOf("p", core.PerHour(2), false)}, Slot: queue(gate), BufferBody: 10}
	}},
}

// A client that expects 100 Continue is asked for its body only if no rule denies the request without
// it.
func TestNoBodyIsAskedForThatIsDenied(t *testing.T) {
	for _, fw := range frameworks {
		for _, e := range expectings {
			t.Run(fw.test()+"/"+e.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					gate := core.Must(core.NewMemory(core.Config{}))
					cfg := e.cfg(gate)
					cfg.Gate = gate
					h := fw.around(same, func(w http.ResponseWriter, r *http.Request) {
						if body, err := io.ReadAll(r.Body); err != nil || string(body) != "abc" {
							t.Errorf("the handler reads %q, %v", body, err)
						}
					}, core.Must(nethttp.NewGuard(cfg)))
					listener := newPipes()
					server := httptest.NewUnstartedServer(h)
					_ = server.Listener.Close()
					server.Listener = listener
					server.Start()
					if asked, status := expect100(t, listener); !asked || status != 200 {
						t.Errorf("the first: asked %v, status %d", asked, status)
					}
					if asked, status := expect100(t, listener); asked != e.asked || status != e.last {
						t.Errorf("asked %v, status %d, want %v and %d", asked, status, e.asked, e.last)
					}
					server.Close()
					gatetest.Worked(t, gate.Close(context.Background()))
				})
			})
		}
	}
}

// expect100 sends a request, and its body if it is asked for it.
func expect100(t *testing.T, p *pipes) (asked bool, status int) {
	t.Helper()
	conn := gatetest.Must(p.dial(t.Context(), "", ""))(t)
	defer conn.Close()
	send := func(s string) {
		gatetest.Worked(t, gatetest.Err(io.WriteString(conn, s)))
	}
	send("POST /users/1 HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
	lines := bufio.NewReader(conn)
	for {
		line := gatetest.Must(lines.ReadString('\n'))(t)
		if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
			t.Fatal(line, err)
		}
		if status != http.StatusContinue {
			return asked, status
		}
		asked = true
		if line, err := lines.ReadString('\n'); err != nil || strings.TrimSpace(line) != "" {
			t.Fatal(line, err)
		}
		send("abc")
	}
}
