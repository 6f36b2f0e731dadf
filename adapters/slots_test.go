package adapters_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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
			if err != nil {
				f.t.Fatal(err)
			}
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
			if got := f.ask("GET /stream"); got.Status != 200 {
				t.Errorf("the first: %d", got.Status)
			}
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
