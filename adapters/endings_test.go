package adapters_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	echov4middleware "github.com/labstack/echo/v4/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	chigate "github.com/headgate/headgate/adapters/chi"
	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

// ending is a way in which a handler ends, and the status that the client gets.
type ending struct {
	name   string
	status int
	failed bool // the handler has failed whatever the status is
	method string
	build  func(nethttp.Admitter) http.Handler
}

var errWrong = errors.New("wrong password")

// caller is a client that records one response. A handler can hijack it.
type caller struct {
	*httptest.ResponseRecorder
	line chan string // the first line on the hijacked connection
}

func (c *caller) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	server, client := net.Pipe()
	c.line = make(chan string, 1)
	go func() {
		defer client.Close()
		r := bufio.NewReader(client)
		line, _ := r.ReadString('\n')
		c.line <- line
		_, _ = io.Copy(io.Discard, r)
	}()
	return server, bufio.NewReadWriter(bufio.NewReader(server), bufio.NewWriter(server)), nil
}

type leaveKey struct{}

// leave has the client of a request leave, and waits until the handler knows that.
func leave(r *http.Request) {
	r.Context().Value(leaveKey{}).(context.CancelFunc)()
	<-r.Context().Done()
}

// play sends the request of an ending and returns the status that the client gets.
func (e ending) play(h http.Handler) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ctx = context.WithValue(ctx, leaveKey{}, cancel)
	method := e.method
	if method == "" {
		method = http.MethodPost
	}
	r := httptest.NewRequestWithContext(ctx, method, "/", nil)
	r.Header.Set("Idempotency-Key", "k")
	c := &caller{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(c, r)
	if c.line == nil {
		return c.Code
	}
	_, status, _ := strings.Cut(<-c.line, " ")
	code, _ := strconv.Atoi(status[:3])
	return code
}

func hijack(w http.ResponseWriter, _ *http.Request) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\n\r\n")
	_ = rw.Flush()
}

// unwraps is the ResponseWriter of middleware that offers nothing but Unwrap.
type unwraps struct{ http.ResponseWriter }

func (u unwraps) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// plainEndings are those of an http.HandlerFunc.
var plainEndings = []struct {
	name    string
	status  int
	failed  bool
	unlike  string // a framework that has no such ending
	handler http.HandlerFunc
}{
	{"a body", 200, false, "", ok},
	{"401 with a body", 401, false, "", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "wrong", http.StatusUnauthorized) }},
	{"500 without a body", 500, false, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }},
	{"204", 204, false, "", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }},
	{"nothing", 200, false, "", func(http.ResponseWriter, *http.Request) {}},
	{"redirect", 303, false, "", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusSeeOther) }},
	{"flush", 200, false, "", func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() }},
	{"status after a body", 200, false, "", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
		w.WriteHeader(500)
	}},
	{"an empty write and then an error", 200, false, "", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(nil); w.WriteHeader(500) }},
	{"a flush and then an error", 200, false, "", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		w.WriteHeader(500)
	}},
	// gin sends the last of them.
	{"two statuses", 403, false, "gin", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(403); w.WriteHeader(500) }},
	{"hijack", 101, false, "", hijack},
	{"panic", 500, false, "", func(http.ResponseWriter, *http.Request) { panic("handler's own") }},
	{"panic after a header", 500, false, "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Begun", "yes")
		panic("handler's own")
	}},
	{"panic after a body", 200, true, "", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok")
		panic("handler's own")
	}},
	// gin writes such a status outside of all middleware.
	{"no such status", 500, false, "gin", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(1) }},
	{"client leaves, 204", 204, false, "", func(w http.ResponseWriter, r *http.Request) { leave(r); w.WriteHeader(204) }},
	{"client leaves, a body", 200, false, "", func(w http.ResponseWriter, r *http.Request) { leave(r); ok(w, r) }},
	{"client leaves, nothing", 200, true, "", func(_ http.ResponseWriter, r *http.Request) { leave(r) }},
	{"mux inside, 404", 404, false, "", http.NewServeMux().ServeHTTP},
}

// endings returns the endings of a framework: the plain ones, and those in its own words.
func endings(fw string, plain func(nethttp.Admitter, http.HandlerFunc) http.Handler, own ...ending) []ending {
	var all []ending
	for _, e := range plainEndings {
		if e.unlike != fw {
			all = append(all, ending{name: e.name, status: e.status, failed: e.failed,
				build: func(g nethttp.Admitter) http.Handler { return plain(g, e.handler) }})
		}
	}
	return append(all, own...)
}

// recovered answers a panic with 500.
func recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if recover() != nil {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func netHTTPEndings() []ending {
	return endings("net/http", func(g nethttp.Admitter, h http.HandlerFunc) http.Handler {
		return recovered(g.Handler(h))
	}, ending{name: "mux inside, 405", status: 405, build: func(g nethttp.Admitter) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /", ok)
		return g.Handler(mux)
	}}, ending{name: "panic, recovered inside", status: 500, build: func(g nethttp.Admitter) http.Handler {
		return g.Handler(recovered(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("own") })))
	}}, ending{name: "hijack behind Unwrap", status: 101, build: func(g nethttp.Admitter) http.Handler {
		h := g.Handler(http.HandlerFunc(hijack))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unwraps{w}, r) })
	}})
}

func chiEndings() []ending {
	router := func(route func(chi.Router)) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			r := chi.NewRouter()
			r.Use(recovered, chigate.Middleware(g))
			route(r)
			return r
		}
	}
	return endings("chi", func(g nethttp.Admitter, h http.HandlerFunc) http.Handler {
		return router(func(r chi.Router) { r.Post("/", h) })(g)
	},
		ending{name: "404", status: 404, build: router(func(r chi.Router) { r.Get("/other", ok) })},
		ending{name: "405", status: 405, build: router(func(r chi.Router) { r.Get("/", ok) })},
		ending{name: "own 404", status: 410, build: router(func(r chi.Router) {
			r.NotFound(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(410) })
			r.Get("/other", ok)
		})},
		ending{name: "wrapped writer inside", status: 401, build: router(func(r chi.Router) {
			r.With(chimiddleware.Compress(5)).Post("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
		})},
		ending{name: "HEAD by GET", status: 401, method: http.MethodHead, build: router(func(r chi.Router) {
			r.With(chimiddleware.GetHead).Get("/", ok)
			r.Head("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
		})})
}

// answerErrors answers c.Errors if nothing is written, as gin's documentation does.
func answerErrors(c *gin.Context) {
	c.Next()
	last := c.Errors.Last()
	switch {
	case last == nil || c.Writer.Written():
	case errors.Is(last, errWrong):
		c.JSON(401, gin.H{"error": last.Error()})
	case last.IsType(gin.ErrorTypeBind):
		c.JSON(400, gin.H{"error": last.Error()})
	case c.Writer.Status() >= 400:
		c.JSON(-1, gin.H{"error": last.Error()})
	default:
		c.JSON(500, gin.H{"error": last.Error()})
	}
}

func ginEndings() []ending {
	gin.SetMode(gin.ReleaseMode)
	engine := func(handlers ...gin.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := gin.New()
			e.Use(gin.RecoveryWithWriter(io.Discard), answerErrors, gingate.Middleware(g))
			e.POST("/", handlers...)
			return e
		}
	}
	again := func(status int) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := gin.New()
			e.POST("/", gingate.Middleware(g), func(c *gin.Context) {
				c.Request.URL.Path = "/other"
				e.HandleContext(c)
			})
			e.POST("/other", func(c *gin.Context) { c.String(status, "other") })
			return e
		}
	}
	timeout := func(c *gin.Context) {
		ctx, cancel := context.WithTimeout(c.Request.Context(), time.Hour)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}
	down := errors.New("database is down")
	memory := core.Must(core.NewMemory(core.Config{}))
	inside := gingate.Middleware(core.Must(nethttp.Limit(memory, "inside", core.PerMinute(1e6), keyfunc.RemoteIP())))
	return endings("gin", func(g nethttp.Admitter, h http.HandlerFunc) http.Handler {
		return engine(gin.WrapF(h))(g)
	},
		ending{name: "Status", status: 204, build: engine(func(c *gin.Context) { c.Status(204) })},
		ending{name: "client leaves, Status 204", status: 204, build: engine(func(c *gin.Context) { leave(c.Request); c.Status(204) })},
		ending{name: "client leaves, Status 200", status: 200, build: engine(func(c *gin.Context) { leave(c.Request); c.Status(200) })},
		ending{name: "client leaves, nothing, a guard inside", status: 200, failed: true, build: engine(inside, func(c *gin.Context) { leave(c.Request) })},
		ending{name: "client leaves, Status 204, a guard inside", status: 204, build: engine(inside, func(c *gin.Context) { leave(c.Request); c.Status(204) })},
		ending{name: "nothing, a timeout inside", status: 200, build: engine(timeout, func(*gin.Context) {})},
		ending{name: "dispatched again, 200", status: 200, build: again(200)},
		ending{name: "dispatched again, 401", status: 401, build: again(401)},
		ending{name: "dispatched again, 502", status: 502, build: again(502)},
		ending{name: "JSON", status: 401, build: engine(func(c *gin.Context) { c.JSON(401, gin.H{}) })},
		ending{name: "AbortWithStatus", status: 401, build: engine(func(c *gin.Context) { c.AbortWithStatus(401) })},
		ending{name: "AbortWithError", status: 502, build: engine(func(c *gin.Context) { _ = c.AbortWithError(502, down) })},
		ending{name: "Redirect", status: 307, build: engine(func(c *gin.Context) { c.Redirect(307, "/other") })},
		ending{name: "Error", status: 500, build: engine(func(c *gin.Context) { _ = c.Error(down) })},
		ending{name: "Error and Status 204", status: 500, build: engine(func(c *gin.Context) { _ = c.Error(down); c.Status(204) })},
		ending{name: "Error and Status 403", status: 403, build: engine(func(c *gin.Context) { _ = c.Error(down); c.Status(403) })},
		ending{name: "Error of binding", status: 400, build: engine(func(c *gin.Context) { _ = c.Error(down).SetType(gin.ErrorTypeBind) })},
		ending{name: "Error and a body", status: 200, build: engine(func(c *gin.Context) { _ = c.Error(down); c.String(200, "ok") })},
		ending{name: "Error answered inside", status: 401, build: engine(answerErrors, func(c *gin.Context) { _ = c.Error(errWrong) })},
		ending{name: "panic, recovered inside", status: 503, build: engine(
			gin.CustomRecoveryWithWriter(io.Discard, func(c *gin.Context, _ any) { c.AbortWithStatus(503) }),
			func(*gin.Context) { panic("own") })},
	)
}

func echoEndings() []ending {
	server := func(h echov4.HandlerFunc, inside ...echov4.MiddlewareFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := echov4.New()
			e.Logger.SetOutput(io.Discard)
			e.HTTPErrorHandler = func(err error, c echov4.Context) {
				switch {
				case errors.Is(err, io.EOF):
					return
				case errors.Is(err, errWrong):
					err = echov4.ErrUnauthorized
				}
				e.DefaultHTTPErrorHandler(err, c)
			}
			e.Use(echov4middleware.Recover(), echogate.Middleware(g))
			e.Use(inside...)
			e.POST("/", h)
			return e
		}
	}
	fails := func(err error) echov4.HandlerFunc { return func(echov4.Context) error { return err } }
	return endings("echo", func(g nethttp.Admitter, h http.HandlerFunc) http.Handler {
		return server(echov4.WrapHandler(h))(g)
	},
		ending{name: "NoContent", status: 204, build: server(func(c echov4.Context) error { return c.NoContent(204) })},
		ending{name: "nothing, a timeout inside", status: 200, build: server(fails(nil), echov4middleware.ContextTimeout(time.Hour))},
		ending{name: "error", status: 500, build: server(fails(io.ErrUnexpectedEOF))},
		ending{name: "HTTPError", status: 403, build: server(fails(echov4.ErrForbidden))},
		ending{name: "wrapped HTTPError", status: 500, build: server(fails(fmt.Errorf("no: %w", echov4.ErrForbidden)))},
		ending{name: "HTTPError inside", status: 409, build: server(fails(&echov4.HTTPError{Code: 403, Internal: echov4.NewHTTPError(409)}))},
		ending{name: "error of the program", status: 401, build: server(fails(errWrong))},
		ending{name: "error after a body", status: 200, build: server(func(c echov4.Context) error { _ = c.String(200, "ok"); return errWrong })},
		ending{name: "error that nobody answers", status: 200, failed: true, build: server(fails(io.EOF))},
		ending{name: "error answered by the handler", status: 401, build: server(func(c echov4.Context) error { c.Error(errWrong); return nil })},
		ending{name: "error turned into another", status: 402, build: server(fails(io.EOF), func(next echov4.HandlerFunc) echov4.HandlerFunc {
			return func(c echov4.Context) error { _ = next(c); return echov4.ErrPaymentRequired }
		})},
		ending{name: "client leaves, its error", status: 500, build: server(func(c echov4.Context) error { leave(c.Request()); return c.Request().Context().Err() })},
		ending{name: "404", status: 404, method: http.MethodPut, build: func(g nethttp.Admitter) http.Handler {
			e := echov4.New()
			e.Use(echogate.Middleware(g))
			return e
		}},
	)
}

func echov5Endings() []ending {
	serve := func(g nethttp.Admitter, cfg echo.Config) *echo.Echo {
		e := echo.NewWithConfig(cfg)
		standard := echo.DefaultHTTPErrorHandler(false)
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errWrong):
				err = echo.ErrUnauthorized
			}
			standard(c, err)
		}
		e.Use(echomiddleware.Recover())
		return e
	}
	server := func(h echo.HandlerFunc, inside ...echo.MiddlewareFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := serve(g, echo.Config{})
			e.Use(echov5gate.Middleware(g))
			e.Use(inside...)
			e.POST("/", h)
			return e
		}
	}
	head := func(h echo.HandlerFunc) func(nethttp.Admitter) http.Handler {
		return func(g nethttp.Admitter) http.Handler {
			e := serve(g, echo.Config{Router: echo.NewRouter(echo.RouterConfig{AutoHandleHEAD: true})})
			e.GET("/", h, echov5gate.Middleware(g))
			return e
		}
	}
	fails := func(err error) echo.HandlerFunc { return func(*echo.Context) error { return err } }
	return endings("echov5", func(g nethttp.Admitter, h http.HandlerFunc) http.Handler {
		return server(echo.WrapHandler(h))(g)
	},
		ending{name: "NoContent", status: 204, build: server(func(c *echo.Context) error { return c.NoContent(204) })},
		ending{name: "nothing, a timeout inside", status: 200, build: server(fails(nil), echomiddleware.ContextTimeout(time.Hour))},
		ending{name: "error", status: 500, build: server(fails(io.ErrUnexpectedEOF))},
		ending{name: "HTTPError", status: 403, build: server(fails(echo.ErrForbidden))},
		ending{name: "wrapped HTTPError", status: 403, build: server(fails(fmt.Errorf("no: %w", echo.ErrForbidden)))},
		ending{name: "error of the program", status: 401, build: server(fails(errWrong))},
		ending{name: "error after a body", status: 200, build: server(func(c *echo.Context) error { _ = c.String(200, "ok"); return errWrong })},
		ending{name: "error that nobody answers", status: 200, failed: true, build: server(fails(io.EOF))},
		ending{name: "error turned into another", status: 402, build: server(fails(io.EOF), func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error { _ = next(c); return echo.NewHTTPError(402, "pay") }
		})},
		ending{name: "client leaves, its error", status: 500, build: server(func(c *echo.Context) error { leave(c.Request()); return c.Request().Context().Err() })},
		ending{name: "HEAD by GET", status: 401, method: http.MethodHead, build: head(func(c *echo.Context) error { return c.String(401, "wrong") })},
		ending{name: "HEAD by GET, error", status: 401, method: http.MethodHead, build: head(fails(errWrong))},
	)
}

// watcher is a rule, and what must follow from the status that the client got.
type watcher struct {
	name  string
	check func(*testing.T, ending)
}

// rule plays an ending on a guard of one rule, and returns what the rule has charged.
func (e ending) rule(t *testing.T, settle func(*http.Request, int, int64) int64) int64 {
	t.Helper()
	f := newFixture(t)
	p := f.policy(core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(100)})
	key := keyfunc.Must(keyfunc.Static("k"))
	e.want(t, e.build(f.guard(nethttp.Config{Rules: []nethttp.Rule{{Policy: p, Key: key, Settle: settle}}})))
	d := gatetest.Peek(t, f.gate, core.Charge{Policy: p, Key: gatetest.Key(t, "k"), Cost: core.NoCost})
	return d.At(0).Used
}

// want plays the ending and checks what the client gets.
func (e ending) want(t *testing.T, h http.Handler) {
	t.Helper()
	gatetest.Equal(t, e.play(h), e.status, "the client gets")
}

// again checks what the client gets for the same request again.
func (e ending) again(t *testing.T, h http.Handler, refused bool, refusal int) {
	t.Helper()
	want := e.status
	if refused {
		want = refusal
	}
	gatetest.Equal(t, e.play(h), want, "the client gets again")
}

var watchers = []watcher{
	{"no rule on the response", func(t *testing.T, e ending) {
		gatetest.Equal(t, e.rule(t, nil), 1, "charged")
	}},
	{"Settle", func(t *testing.T, e ending) {
		var seen []int
		e.rule(t, func(_ *http.Request, status int, cost int64) int64 { seen = append(seen, status); return cost })
		gatetest.Equal(t, fmt.Sprint(seen), fmt.Sprintf("[%d]", e.status), "Settle is given")
	}},
	{"CountOnly", func(t *testing.T, e ending) {
		gatetest.Equal(t, e.rule(t, nethttp.CountOnly(e.status)), 1, "charged")
		gatetest.Equal(t, e.rule(t, nethttp.CountOnly(e.status+1)), 0, "charged for another status")
	}},
	{"RefundServerErrors", func(t *testing.T, e ending) {
		used := e.rule(t, nethttp.RefundServerErrors)
		gatetest.Equal(t, used == 0, e.status >= 500, "charged %d: nothing", used)
	}},
	{"StrikeOn", func(t *testing.T, e ending) {
		for _, status := range []int{e.status, e.status + 1} {
			f := newFixture(t)
			bans := f.policy(core.PolicyConfig{Name: "bans", Algorithm: core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}})
			h := e.build(f.guard(nethttp.Config{Blocks: []nethttp.BlockRule{{
				Policy: bans, Key: keyfunc.RemoteIP(), Strikes: nethttp.StrikeOn(status)}}}))
			e.want(t, h)
			e.again(t, h, status == e.status, http.StatusTooManyRequests)
		}
	}},
	{"Replay", func(t *testing.T, e ending) {
		for _, status := range []int{http.StatusConflict, 0} { // 0 repeats the answer
			f := newFixture(t)
			replay := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
				Once: core.Must(once.New(f.gate, once.Config{Name: "ids", Window: time.Hour})),
				ID:   keyfunc.Must(keyfunc.Header("Idempotency-Key")), HandledStatus: status,
			}))
			h := e.build(replay)
			e.want(t, h)
			refusal := cmp.Or(status, e.status)
			if e.status == http.StatusSwitchingProtocols || strings.Contains(e.name, "flush") || e.name == "error after a body" ||
				strings.HasPrefix(e.name, "dispatched again") { // none is kept
				refusal = http.StatusConflict
			}
			e.again(t, h, e.status < 400 && !e.failed, refusal)
		}
	}},
}

// The status that rules, strikes, refunds and a Replay see is the one that the client gets.
func TestStatusIsTheClients(t *testing.T) {
	for name, all := range map[string][]ending{
		"net-http": netHTTPEndings(), "chi": chiEndings(), "gin": ginEndings(), "echo": echoEndings(), "echov5": echov5Endings(),
	} {
		for _, e := range all {
			for _, w := range watchers {
				t.Run(name+"/"+e.name+"/"+w.name, func(t *testing.T) { w.check(t, e) })
			}
		}
	}
}
