package adapters_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// rawServer answers each connection with the bytes of its path's answer.
func rawServer(t *testing.T, answers map[string]string) http.Handler {
	t.Helper()
	listener := gatetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(patience))
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				fmt.Fprint(conn, strings.ReplaceAll(answers[r.URL.Path], "\n", "\r\n"))
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: listener.Addr().String()})
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	return proxy
}

const (
	earlyHints = "HTTP/1.1 103 Early Hints\nLink: </style.css>; rel=preload\n\n"
	limited    = "HTTP/1.1 200 OK\nConnection: close\nContent-Length: 2\nRateLimit: \"up\";r=1\nX-RateLimit-Limit: 5000\n" +
		"X-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1700000000\nX-RateLimit-Used: 1\nVary: Accept\n\nok"
)

var hintedAnswers = map[string]string{
	"/plain": limited, "/api/plain": limited, "/hints": earlyHints + earlyHints + limited, "/api/hints": earlyHints + limited,
}

// The limits of a Guard around a reverse proxy reach the client once, also after an informational
// response, which makes httputil.ReverseProxy delete all headers. Those that its server adds in the
// same headers do not. The standard headers are lists and keep both.
func TestLimitsAroundProxy(t *testing.T) {
	legacy := map[string]string{"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": "20", "Ratelimit": `"up";r=1`}
	server := map[string]string{"Ratelimit": `"up";r=1`, "X-Ratelimit-Limit": "5000", "X-Ratelimit-Remaining": "4999", "X-Ratelimit-Reset": "1700000000"}
	standard := func(name string, r int) map[string]string {
		return map[string]string{
			"Ratelimit": fmt.Sprintf(`"%s";r=%d;t=20 | "up";r=1`, name, r), "Ratelimit-Policy": fmt.Sprintf(`"%s";q=3;w=60`, name),
			"X-Ratelimit-Limit": "5000", "X-Ratelimit-Remaining": "4999", "X-Ratelimit-Reset": "1700000000",
		}
	}
	settles := []func(*nethttp.Rule){func(r *nethttp.Rule) { r.Settle = nethttp.RefundServerErrors }}
	for _, c := range []struct {
		name         string
		dialect      nethttp.Dialect
		change       []func(*nethttp.Rule)
		innerDialect nethttp.Dialect // or no inner guard
		paths        []string
		want         map[string]string
		openAI       string
	}{
		{"standard", nil, nil, nil, []string{"/plain", "/hints"}, standard("p", 2), ""},
		{"standard, settled", nil, settles, nil, []string{"/plain", "/hints"}, standard("p", 2), ""},
		{"legacy", nethttp.Legacy{}, nil, nil, []string{"/plain", "/hints"}, legacy, ""},
		{"legacy, settled", nethttp.Legacy{}, settles, nil, []string{"/plain", "/hints"}, legacy, ""},
		{"of OpenAI", llm.OpenAI{}, nil, nil, []string{"/plain", "/hints"}, server, "3"},
		{"a tighter inner guard", nethttp.Legacy{}, nil, nethttp.Legacy{}, []string{"/api/plain", "/api/hints"}, map[string]string{
			"X-Ratelimit-Limit": "2", "X-Ratelimit-Remaining": "1", "X-Ratelimit-Reset": "30", "Ratelimit": `"up";r=1`}, ""},
		{"an inner guard of another dialect", nethttp.Legacy{}, nil, nethttp.Draft11{}, []string{"/api/plain", "/api/hints"}, map[string]string{
			"X-Ratelimit-Limit": "3", "X-Ratelimit-Remaining": "2", "X-Ratelimit-Reset": "20",
			"Ratelimit": `"inner";r=1;t=30 | "up";r=1`, "Ratelimit-Policy": `"inner";q=2;w=60`}, ""},
		{"no headers", nethttp.None{}, nil, nil, []string{"/plain", "/hints"}, server, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				for i, http2 := range []bool{false, true} {
					for _, path := range c.paths {
						f := newFixture(t)
						proxy := rawServer(t, hintedAnswers)
						root := f.spoken(c.dialect, core.PolicyConfig{Algorithm: core.PerMinute(3)}, c.change...)
						a := &app{root: root, routes: []route{{"GET", path, proxy.ServeHTTP}}}
						if c.innerDialect != nil {
							a.inner = f.spoken(c.innerDialect, core.PolicyConfig{Name: "inner", Algorithm: core.PerMinute(2)})
						}
						f.serve(fw.build, a, i > 0)
						got := f.ask("GET " + path)
						if got.Status != 200 || got.Body != "ok" || fmt.Sprint(got.limits()) != fmt.Sprint(c.want) {
							t.Errorf("%s, HTTP/2 %t: %d, %q, %v, want %v", path, http2, got.Status, got.Body, got.limits(), c.want)
						}
						if limit, used := got.Header.Get("X-Ratelimit-Limit-Requests"), got.Header.Get("X-Ratelimit-Used"); limit != c.openAI || used != "1" {
							t.Errorf("%s: X-RateLimit-Limit-Requests %s, X-RateLimit-Used %s", path, limit, used)
						}
					}
				}
			})
		})
	}
}

// The informational response itself passes, and its headers are not in the response.
func TestEarlyHintsPass(t *testing.T) {
	f := newFixture(t)
	f.server = httptest.NewServer(f.guard(f.perRoute()).Handler(rawServer(t, hintedAnswers)))
	t.Cleanup(f.server.Close)
	var links []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { links = append(links, h.Get("Link")); return nil },
	})
	r := core.Must(http.NewRequestWithContext(ctx, "GET", f.server.URL+"/hints", nil))
	response := gatetest.Must(f.server.Client().Do(r))(t)
	response.Body.Close()
	if len(links) != 2 || links[1] == "" || response.Header.Get("Link") != "" || len(response.Header.Values("Vary")) != 1 {
		t.Errorf("%q, then %v", links, response.Header)
	}
}

// What a handler does to the Guard's headers on purpose stays.
func TestHandlerChangesLimits(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		for name, c := range map[string]struct {
			change func(h http.Header)
			want   string
		}{
			"set":    {func(h http.Header) { h.Set("X-Ratelimit-Remaining", "1") }, "3 1 20"},
			"delete": {func(h http.Header) { h.Del("X-Ratelimit-Reset") }, "3 2 "},
		} {
			f := newFixture(t)
			root := f.spoken(nethttp.Legacy{}, core.PolicyConfig{Algorithm: core.PerMinute(3)})
			f.serve(fw.build, &app{root: root, routes: []route{{"GET", "/users/{id}", func(w http.ResponseWriter, _ *http.Request) {
				c.change(w.Header())
				w.WriteHeader(http.StatusOK)
			}}}}, false)
			h := f.ask("GET /users/1").Header
			if got := h.Get("X-Ratelimit-Limit") + " " + h.Get("X-Ratelimit-Remaining") + " " + h.Get("X-Ratelimit-Reset"); got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
	})
}

// meter returns a Meter with a budget that is not spent.
func meter(f *fixture, dialect nethttp.Dialect) *llm.Meter {
	f.t.Helper()
	tokens := f.policy(core.PolicyConfig{Name: "tokens", Unit: core.UnitTokens, Hold: time.Minute, Algorithm: core.PerMinute(100_000)})
	m := core.Must(llm.New(llm.Config{
		Guard: nethttp.Config{Gate: f.gate, Dialect: dialect}, Budgets: []llm.Budget{{Policy: tokens, Key: keyfunc.RemoteIP()}},
	}))
	return m
}

const ask = `{"model":"m","max_tokens":10,"stream":true,"stream_options":{"include_usage":true},"messages":[]}`

// A Meter's limits replace those of the server behind it in every dialect, once, also after an
// informational response.
func TestLimitsOfMeter(t *testing.T) {
	for name, c := range map[string]struct {
		dialect nethttp.Dialect
		header  string
	}{
		"of the format": {nil, "X-Ratelimit-Limit-Tokens"}, "standard": {nethttp.Draft11{}, "Ratelimit"}, "legacy": {nethttp.Legacy{}, "X-Ratelimit-Limit"},
	} {
		for _, before := range []string{"", earlyHints} {
			f := newFixture(t)
			proxy := rawServer(t, map[string]string{"/v1/chat/completions": before + strings.Replace(limited, "Vary", "X-RateLimit-Limit-Tokens: 7\nAnthropic-RateLimit-Unified-Reset: 7\nRateLimitBySize-Remaining: 7\nVary", 1)})
			h := meter(f, c.dialect).Handler(proxy)
			f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("X-Request-Id", "1")
				h.ServeHTTP(w, r)
			}))
			t.Cleanup(f.server.Close)
			got := f.ask("POST /v1/chat/completions "+ask, "Content-Type: application/json")
			for header, values := range got.Header {
				if strings.Contains(header, "Ratelimit") && (len(values) != 1 || strings.Contains("5000 7 \"up\";r=1", values[0]) && header != "X-Ratelimit-Reset") {
					t.Errorf("%s, %q: %s is %q", name, before, header, values)
				}
			}
			if got.Status != 200 || got.Header.Get(c.header) == "" || got.Header.Get("X-Request-Id") != "1" {
				t.Errorf("%s, %q: %d, %v", name, before, got.Status, got.Header)
			}
		}
	}
}

// wraps are what may wrap the ResponseWriter of a handler.
func wraps(t *testing.T) map[string]outside {
	f := newFixture(t)
	many := core.PolicyConfig{Algorithm: core.PerMinute(100)}
	plain, settled := f.limit(many), f.limit(many, func(r *nethttp.Rule) { r.Settle = nethttp.RefundServerErrors })
	return map[string]outside{
		"bare": same, "guard": plain.Handler, "settled": settled.Handler, "meter": meter(f, nil).Handler,
		"guard, meter": func(h http.Handler) http.Handler { return plain.Handler(meter(f, nil).Handler(h)) },
	}
}

// A handler in gin streams by Context.Stream behind everything that wraps its ResponseWriter.
func TestGinStreamsBehindGuards(t *testing.T) {
	for name, wrap := range wraps(t) {
		for i, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", name, http2), func(t *testing.T) {
				gin.SetMode(gin.ReleaseMode)
				engine := gin.New()
				engine.POST("/v1/chat/completions", func(c *gin.Context) {
					c.Header("Content-Type", "text/event-stream")
					events := 0
					c.Stream(func(w io.Writer) bool {
						fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n")
						events++
						return events < 3
					})
				})
				f := newFixture(t)
				f.serve(func(*app) http.Handler { return wrap(engine) }, &app{}, i > 0)
				got := f.ask("POST /v1/chat/completions "+ask, "Content-Type: application/json")
				if got.Status != 200 || strings.Count(got.Body, "word") != 3 {
					t.Errorf("%d, %q", got.Status, got.Body)
				}
			})
		}
	}
}

// The error of a flush that cannot reach the client reaches the handler.
func TestFlushErrorIsTold(t *testing.T) {
	for name, wrap := range wraps(t) {
		t.Run(name, func(t *testing.T) {
			flushed := make(chan error, 1)
			f := newFixture(t)
			f.serve(func(*app) http.Handler {
				return wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					rc := http.NewResponseController(w)
					gatetest.Worked(t, rc.SetWriteDeadline(time.Now().Add(-time.Second)))
					_, _ = io.WriteString(w, "data: {}\n\n")
					flushed <- rc.Flush()
				}))
			}, &app{}, false)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			r := core.Must(http.NewRequestWithContext(ctx, "POST", f.server.URL+"/v1/chat/completions", strings.NewReader(ask)))
			r.Header.Set("Content-Type", "application/json")
			if response, err := f.server.Client().Do(r); err == nil {
				response.Body.Close()
			}
			if err := <-flushed; err == nil {
				t.Error("no error")
			}
		})
	}
}
