package adapters_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"testing"
	"time"

	chimiddleware "github.com/go-chi/chi/v5/middleware"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// patience is the longest wait of a test.
const patience = time.Minute

// An event reaches the client while the handler runs, through the framework's own writer.
func TestEventsAreFlushed(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		each(t, func(t *testing.T, fw framework) {
			f := newFixture(t)
			read := make(chan struct{})
			f.serve(fw.build, &app{root: f.guard(f.perRoute()), routes: []route{{"GET", "/events", func(w http.ResponseWriter, r *http.Request) {
				if _, ok := w.(http.Flusher); !ok {
					t.Errorf("%T is no Flusher", w)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "data: 1\n\n")
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Errorf("flush: %v", err)
				}
				select {
				case <-read:
				case <-r.Context().Done():
				}
				fmt.Fprint(w, "data: 2\n\n")
			}}}}, http2)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r := core.Must(http.NewRequestWithContext(ctx, "GET", f.server.URL+"/events", nil))
			response := gatetest.Must(f.server.Client().Do(r))(t)
			defer response.Body.Close()
			if http2 != (response.ProtoMajor == 2) {
				t.Errorf("served by %s", response.Proto)
			}
			if got := response.Header.Get("RateLimit"); got != `"address";r=99;t=1, "route";r=2;t=20` {
				t.Errorf("RateLimit %q", got)
			}
			events := bufio.NewReader(response.Body)
			if line, err := events.ReadString('\n'); line != "data: 1\n" {
				t.Fatalf("first line %q, %v", line, err)
			}
			close(read)
			if rest, err := io.ReadAll(events); string(rest) != "\ndata: 2\n\n" {
				t.Errorf("rest %q, %v", rest, err)
			}
		})
	}
}

// When the client leaves, a running decision ends and spends nothing, and the handler's context
// ends.
func TestClientLeaves(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		started, ended := make(chan struct{}, 1), make(chan error, 1)
		wait := func(ctx context.Context) {
			started <- struct{}{}
			select {
			case <-ctx.Done():
			case <-time.After(patience):
			}
		}
		cfg := f.perRoute()
		only(core.PolicyConfig{Algorithm: core.PerMinute(2)}, keyed(func(r *http.Request) (string, error) {
			if r.Header.Get("Wait") == "key" {
				wait(r.Context())
			}
			return keyfunc.RemoteIP()(r)
		}))(f, &cfg)
		cfg.Observe = func(_ context.Context, e core.Event) {
			if e := e.(*nethttp.AdmissionEvent); e.Request.Header.Get("Wait") == "key" {
				ended <- e.Admission.Err()
			}
		}
		f.serve(fw.build, &app{root: f.guard(cfg), routes: []route{{"GET", "/slow", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Wait") == "handler" {
				wait(r.Context())
				ended <- r.Context().Err()
			}
		}}}}, false)
		for _, where := range []string{"key", "handler"} {
			ctx, cancel := context.WithCancel(t.Context())
			r := core.Must(http.NewRequestWithContext(ctx, "GET", f.server.URL+"/slow", nil))
			r.Header.Set("Wait", where)
			go func() {
				<-started
				cancel()
			}()
			if response, err := f.server.Client().Do(r); err == nil {
				response.Body.Close()
				t.Errorf("%s: status %d", where, response.StatusCode)
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: ended with %v", where, err)
			}
		}
		if got := f.ask("GET /slow").limits()["Ratelimit"]; got != `"p";r=0;t=30` {
			t.Errorf("only the handler's request is spent: %s", got)
		}
	})
}

// http.TimeoutHandler outside the guard drops the guard's headers when it fires. Inside it keeps
// them. The request is charged in both cases.
func TestTimeoutHandler(t *testing.T) {
	never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	late := func(h http.Handler, after time.Duration) http.Handler { return http.TimeoutHandler(h, after, "late") }
	each(t, func(t *testing.T, fw framework) {
		for _, c := range []struct {
			name            string
			outside, inside time.Duration
			handler         http.HandlerFunc
			status          int
			limited         bool
		}{
			{"outside, in time", patience, 0, user, 200, true},
			{"inside, in time", 0, patience, user, 200, true},
			{"outside, late", time.Millisecond, 0, never, 503, false},
			{"inside, late", 0, time.Millisecond, never, 503, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				f := newFixture(t)
				handler := c.handler
				if c.inside > 0 {
					handler = late(handler, c.inside).ServeHTTP
				}
				decided := make(chan error, 9)
				cfg := f.perRoute()
				cfg.Observe = func(_ context.Context, e core.Event) { decided <- e.(*nethttp.AdmissionEvent).Admission.Err() }
				f.serve(func(a *app) http.Handler {
					h := fw.build(a)
					if c.outside > 0 {
						inTime := h
						h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							if r.URL.Path == "/slow/1" {
								late(inTime, c.outside).ServeHTTP(w, r)
							} else {
								inTime.ServeHTTP(w, r)
							}
						})
					}
					return h
				}, &app{root: f.guard(cfg), routes: []route{{"GET", "/slow/{id}", handler}}}, false)
				got := f.ask("GET /slow/1")
				for errors.Is(<-decided, context.DeadlineExceeded) { // before the guard decided
					got = f.ask("GET /slow/1")
				}
				if got.Status != c.status || c.status == 503 && got.Body != "late" {
					t.Errorf("status %d, body %q", got.Status, got.Body)
				}
				if limited := got.limits()["Ratelimit"] == `"address";r=99;t=1, "route";r=2;t=20`; limited != c.limited {
					t.Errorf("limits %v", got.limits())
				}
				if next := f.ask("GET /nope").limits()["Ratelimit"]; next != `"address";r=98;t=1, "route";r=2;t=20` {
					t.Errorf("afterwards %s", next)
				}
			})
		}
	})
}

// abilities names the optional interfaces of a ResponseWriter.
func abilities(w http.ResponseWriter) (names string) {
	for _, a := range []struct {
		name string
		has  func() bool
	}{
		{"Flusher", func() bool { _, ok := w.(http.Flusher); return ok }},
		{"Hijacker", func() bool { _, ok := w.(http.Hijacker); return ok }},
		{"ReaderFrom", func() bool { _, ok := w.(io.ReaderFrom); return ok }},
		{"Pusher", func() bool { _, ok := w.(http.Pusher); return ok }},
		{"CloseNotifier", func() bool { _, ok := w.(interface{ CloseNotify() <-chan bool }); return ok }},
	} {
		if a.has() {
			names += " " + a.name
		}
	}
	return names
}

// bareWriter hides the optional interfaces of a ResponseWriter.
type bareWriter struct{ http.ResponseWriter }

// The handler gets the abilities of the framework's writer, whatever that stands on.
func TestWriterKeepsItsAbilities(t *testing.T) {
	for name, outer := range map[string]func(http.Handler) http.Handler{
		"server":       func(h http.Handler) http.Handler { return h },
		"timeout":      func(h http.Handler) http.Handler { return http.TimeoutHandler(h, patience, "") },
		"chi's logger": chimiddleware.RequestLogger(&chimiddleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)}),
		"only the writer": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(bareWriter{w}, r) })
		},
		"a flusher": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(struct {
					http.ResponseWriter
					http.Flusher
				}{w, w.(http.Flusher)}, r)
			})
		},
		"all but ReadFrom": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				hijacker, _ := w.(http.Hijacker)
				h.ServeHTTP(struct {
					http.ResponseWriter
					http.Flusher
					http.Hijacker
				}{w, w.(http.Flusher), hijacker}, r)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				for i, http2 := range []bool{false, true} {
					var seen []string
					f := newFixture(t)
					settled := f.perRoute()
					settled.Rules[0].Settle = nethttp.RefundServerErrors
					for _, g := range []*nethttp.Guard{nil, f.guard(f.perRoute()), f.guard(settled)} {
						f := newFixture(t)
						f.serve(func(*app) http.Handler {
							return outer(fw.bare(g, func(w http.ResponseWriter, _ *http.Request) {
								seen = append(seen, abilities(w))
								_, _ = io.WriteString(w, "ok")
							}))
						}, &app{}, i > 0)
						if got := f.ask("GET /users/1"); got.Body != "ok" || got.Status != 200 {
							t.Errorf("HTTP/2 %t: %d, %q", http2, got.Status, got.Body)
						}
					}
					if len(seen) != 3 || seen[1] != seen[0] || seen[2] != seen[0] {
						t.Errorf("HTTP/2 %t: %q", http2, seen)
					}
				}
			})
		})
	}
}

// The panic value of a handler arrives outside.
func TestPanicPassesThrough(t *testing.T) {
	value := new(int)
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		fails := func(http.ResponseWriter, *http.Request) { panic(value) }
		for _, h := range []http.Handler{fw.bare(nil, fails), fw.bare(f.guard(f.perRoute()), fails)} {
			func() {
				defer func() {
					if p := recover(); p != any(value) {
						t.Errorf("panic %v", p)
					}
				}()
				send(h, "GET", "/users/1")
			}()
		}
	})
}
