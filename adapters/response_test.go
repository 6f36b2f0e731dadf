package adapters_test

import (
	"bufio"
	"context"
	"errors"
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
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// patience is the longest wait of a test.
const patience = time.Minute

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
			gatetest.Is(t, <-ended, context.Canceled, "%s: ended with", where)
		}
		left := f.ask("GET /slow").limits()["Ratelimit"]
		gatetest.Equal(t, left, `"p";r=0;t=30`, "only the handler's request is spent")
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
				limited := got.limits()["Ratelimit"] == `"address";r=99;t=1, "route";r=2;t=20`
				gatetest.Equal(t, limited, c.limited, "limits %v are those of the guard", got.limits())
				next := f.ask("GET /nope").limits()["Ratelimit"]
				gatetest.Equal(t, next, `"address";r=98;t=1, "route";r=2;t=20`, "afterwards")
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
	} {
		if a.has() {
			names += " " + a.name
		}
	}
	return names
}

// bareWriter hides the optional interfaces of a ResponseWriter.
type bareWriter struct{ http.ResponseWriter }

// The handler gets the abilities of the framework's writer, whatever that stands on, except Push.
func TestWriterKeepsItsAbilities(t *testing.T) {
	for name, outer := range map[string]func(http.Handler) http.Handler{
		"server":       func(h http.Handler) http.Handler { return h },
		"timeout":      func(h http.Handler) http.Handler { return http.TimeoutHandler(h, patience, "") },
		"chi's logger": chimiddleware.RequestLogger(&chimiddleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)}),
		"only the writer": func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(bareWriter{w}, r) })
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
								_, _ = io.Copy(w, io.LimitReader(strings.NewReader("ok"), 2)) // by ReadFrom, if w has it
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

// The panic value of a handler arrives outside, and so does the pattern that a mux inside sets.
func TestPanicPassesThrough(t *testing.T) {
	value := new(int)
	each(t, func(t *testing.T, fw framework) {
		f := newFixture(t)
		fails := func(http.ResponseWriter, *http.Request) { panic(value) }
		for _, h := range []http.Handler{fw.bare(nil, fails), fw.bare(f.guard(f.perRoute()), fails)} {
			var outside *http.Request
			func() {
				defer func() {
					if p := recover(); p != any(value) || fw.name == "net/http" && outside.Pattern != "/users/{id}" {
						t.Errorf("panic %v, pattern %q", p, outside.Pattern)
					}
				}()
				send(h, "GET", "/users/1", func(r *http.Request) { outside = r })
			}()
		}
	})
}

// A reverse proxy writes the header of an upgrade to the connection that it has hijacked, with the limits
// of the Guard in place of its server's.
func TestLimitsOfProxiedUpgrade(t *testing.T) {
	const switched = "HTTP/1.1 101 Switching Protocols\nConnection: Upgrade\nUpgrade: echo\n" +
		"X-RateLimit-Limit: 5000\nX-RateLimit-Used: 1\n\n"
	each(t, func(t *testing.T, fw framework) {
		for name, answer := range map[string]string{"at once": switched, "after a hint": earlyHints + switched} {
			f := newFixture(t)
			root := f.spoken(nethttp.Legacy{}, core.PolicyConfig{Algorithm: core.PerMinute(3)})
			proxy := rawServer(t, map[string]string{"/socket": answer})
			f.serve(fw.build, &app{root: root, routes: []route{{"GET", "/socket", proxy.ServeHTTP}}}, false)
			conn := gatetest.Must(net.Dial("tcp", f.server.Listener.Addr().String()))(t)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			fmt.Fprint(conn, "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
			in := bufio.NewReader(conn)
			r, err := http.ReadResponse(in, nil)
			if err == nil && r.StatusCode == http.StatusEarlyHints {
				r, err = http.ReadResponse(in, nil)
			}
			gatetest.NoError(t, err)
			got := fmt.Sprint(r.StatusCode, r.Header["X-Ratelimit-Limit"], r.Header["X-Ratelimit-Remaining"], r.Header["X-Ratelimit-Used"])
			gatetest.Equal(t, got, "101 [3] [2] [1]", "%s", name)
		}
	})
}

const fileSize = 1 << 20

// download is a handler that writes a body, and how a client asks for it.
type download struct {
	name    string
	size    int
	handler http.HandlerFunc
	method  string   // POST if it is empty
	headers []string // name and value
}

func downloads(t *testing.T) []download {
	path := filepath.Join(t.TempDir(), "file.bin")
	gatetest.NoError(t, os.WriteFile(path, make([]byte, fileSize), 0o600))
	abc := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ab"))
		_, _ = io.WriteString(w, "c")
	}
	file := func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }
	return []download{
		{name: "nothing", size: 0, handler: func(http.ResponseWriter, *http.Request) {}},
		{name: "two writes", size: 3, handler: abc},
		{name: "HEAD", size: 0, handler: abc, method: http.MethodHead},
		{name: "a file", size: fileSize, handler: file},
		{name: "HEAD of a file", size: 0, handler: file, method: http.MethodHead},
		{name: "a range of a file", size: 1000, handler: file, headers: []string{"Range", "bytes=500-1499"}},
		{name: "a copy of a file", size: fileSize, handler: func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			_, _ = io.Copy(w, f)
		}},
		{name: "a stream", size: 30, handler: func(w http.ResponseWriter, r *http.Request) {
			for range 10 {
				abc(w, r)
				_ = http.NewResponseController(w).Flush()
			}
		}},
		{name: "304", size: 0, handler: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNotModified)
			abc(w, r) // which fails
		}},
		{name: "an error", size: 4, handler: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad", http.StatusBadRequest) }},
		{name: "panic after a body", size: 3, handler: func(w http.ResponseWriter, r *http.Request) {
			abc(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
		{name: "hijack", size: 0, handler: func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = rw.WriteString("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			_ = rw.Flush()
		}},
	}
}

// metered returns a guard that tells the bytes of each response.
func metered(gate *core.Gate, name string) (*nethttp.Guard, chan int64) {
	seen := make(chan int64, 1)
	p := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: name, Algorithm: core.PerHour(1 << 40), Unit: core.UnitContentBytes,
	}))
	return core.Must(nethttp.NewGuard(nethttp.Config{Gate: gate, Dialect: nethttp.None{}, Rules: []nethttp.Rule{{
		Policy: p, Key: keyfunc.Must(keyfunc.Static("k")),
		Settle: func(r *http.Request, _ int, _ int64) int64 {
			n := nethttp.AdmissionFromContext(r.Context()).Written()
			seen <- n
			return n
		},
	}}})), seen
}

// play checks that the client gets the bytes of a download, and that the guards tell as many.
func (d download) play(t *testing.T, h http.Handler, all ...chan int64) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	method := d.method
	if method == "" {
		method = http.MethodPost
	}
	r := core.Must(http.NewRequestWithContext(t.Context(), method, server.URL+"/users/1", nil))
	for i := 0; i < len(d.headers); i += 2 {
		r.Header.Set(d.headers[i], d.headers[i+1])
	}
	response := gatetest.Must(server.Client().Do(r))(t)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	gatetest.Equal(t, len(body), d.size, "bytes of the client")
	for i, seen := range all {
		gatetest.Equal(t, <-seen, int64(d.size), "guard %d tells bytes", i)
	}
}

// A Settle knows the bytes of the response, behind one guard and between others.
func TestSettleKnowsTheBytes(t *testing.T) {
	for _, fw := range frameworks {
		for _, d := range downloads(t) {
			t.Run(fw.test()+"/"+d.name, func(t *testing.T) {
				gate := newFixture(t).gate
				p := core.Must(core.NewPolicy(core.PolicyConfig{Name: "plain", Algorithm: core.PerHour(100)}))
				plain := core.Must(nethttp.NewGuard(nethttp.Config{ // leaves the response alone
					Gate: gate, Rules: []nethttp.Rule{{Policy: p, Key: keyfunc.RemoteIP()}}, Dialect: nethttp.None{}}))
				inner, seenInside := metered(gate, "inside")
				outer, seenOutside := metered(gate, "outside")
				d.play(t, fw.around(same, d.handler, outer, plain, inner), seenInside, seenOutside)
				d.play(t, fw.around(same, d.handler, plain, inner, plain), seenInside)
				d.play(t, fw.around(same, d.handler, plain, outer), seenOutside)
			})
		}
	}
}

// The same holds for the frameworks' own ways to respond.
func TestSettleKnowsTheBytesOfFrameworks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.bin")
	gatetest.NoError(t, os.WriteFile(path, make([]byte, fileSize), 0o600))
	withGin := func(h gin.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := gin.New()
			e.Use(gingate.Middleware(g))
			e.POST("/users/:id", h)
			return e
		}
	}
	withEcho := func(h echov4.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := echov4.New()
			e.Use(echogate.Middleware(g))
			e.POST("/users/:id", h)
			return e
		}
	}
	withEchov5 := func(h echo.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := echo.New()
			e.Use(echov5gate.Middleware(g))
			e.POST("/users/:id", h)
			return e
		}
	}
	forbidden := len(`{"message":"Forbidden"}` + "\n")
	for name, c := range map[string]struct {
		size  int
		build func(nethttp.Admitter) http.Handler
	}{
		"gin/JSON":        {len(`{}`), withGin(func(c *gin.Context) { c.JSON(200, gin.H{}) })},
		"gin/String":      {3, withGin(func(c *gin.Context) { c.String(200, "abc") })},
		"gin/File":        {fileSize, withGin(func(c *gin.Context) { c.File(path) })},
		"echo/JSON":       {len("{}\n"), withEcho(func(c echov4.Context) error { return c.JSON(200, struct{}{}) })},
		"echo/File":       {fileSize, withEcho(func(c echov4.Context) error { return c.File(path) })},
		"echo/an error":   {forbidden, withEcho(func(echov4.Context) error { return echov4.ErrForbidden })},
		"echov5/JSON":     {len("{}\n"), withEchov5(func(c *echo.Context) error { return c.JSON(200, struct{}{}) })},
		"echov5/an error": {forbidden, withEchov5(func(*echo.Context) error { return echo.ErrForbidden })},
		"chi/compressed inside": {len(strings.Repeat("a", 10)), func(g nethttp.Admitter) http.Handler {
			r := chi.NewRouter()
			r.Use(chigate.Middleware(g), chimiddleware.Compress(5, "text/none"))
			r.Post("/users/{id}", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("a", 10)) })
			return r
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g, seen := metered(newFixture(t).gate, "bytes")
			download{size: c.size}.play(t, c.build(g), seen)
		})
	}
}

// rawServer answers each connection with the bytes of its path's answer.
func rawServer(t *testing.T, answers map[string]string) *httputil.ReverseProxy {
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
	proxy.ErrorLog, proxy.ModifyResponse = log.New(io.Discard, "", 0), nethttp.KeepHeaders
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

// A handler that lets the server write the status has sent 200.
func TestStatusWithoutHeader(t *testing.T) {
	for name, send := range map[string]func(w http.ResponseWriter){
		"nothing": func(http.ResponseWriter) {},
		"bytes":   func(w http.ResponseWriter) { _, _ = w.Write([]byte("ok")) },
		"text":    func(w http.ResponseWriter) { _, _ = io.WriteString(w, "ok") },
		"copy":    func(w http.ResponseWriter) { _, _ = io.Copy(w, strings.NewReader("ok")) },
		"flush":   func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() },
		"hints":   func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints); _, _ = w.Write([]byte("ok")) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, fw framework) {
				f := newFixture(t)
				statuses := make(chan int, 1)
				settle := func(r *nethttp.Rule) {
					r.Settle = func(_ *http.Request, status int, cost int64) int64 { statuses <- status; return cost }
				}
				root := f.spoken(nethttp.Legacy{}, core.PolicyConfig{Algorithm: core.PerMinute(3)}, settle)
				f.serve(fw.build, &app{root: root, routes: []route{{"GET", "/users/{id}", func(w http.ResponseWriter, _ *http.Request) { send(w) }}}}, false)
				f.ask("GET /users/1")
				gatetest.Equal(t, <-statuses, 200, "status")
			})
		})
	}
}

// What a handler does to the Guard's headers on purpose stays.
func TestHandlerChangesLimits(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		for name, c := range map[string]struct {
			change func(h http.Header)
			want   string
		}{
			"set":    {func(h http.Header) { h.Set("X-Ratelimit-Remaining", "1") }, "[3] [1] [20]"},
			"delete": {func(h http.Header) { h.Del("X-Ratelimit-Reset") }, "[3] [2] []"},
		} {
			f := newFixture(t)
			root := f.spoken(nethttp.Legacy{}, core.PolicyConfig{Algorithm: core.PerMinute(3)})
			f.serve(fw.build, &app{root: root, routes: []route{{"GET", "/users/{id}", func(w http.ResponseWriter, _ *http.Request) {
				c.change(w.Header())
				w.WriteHeader(http.StatusOK)
			}}}}, false)
			h := f.ask("GET /users/1").Header
			got := fmt.Sprint(h["X-Ratelimit-Limit"], h["X-Ratelimit-Remaining"], h["X-Ratelimit-Reset"])
			gatetest.Equal(t, got, c.want, "%s", name)
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
			proxy.ModifyResponse = nil // a Meter needs none
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
			kept := got.Header.Get("X-Request-Id") == "1" || before != "" // a proxy deletes it before a hint
			if got.Status != 200 || got.Header.Get(c.header) == "" || !kept {
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
			gatetest.Fails(t, <-flushed, "no error")
		})
	}
}
