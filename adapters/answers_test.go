package adapters_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gin-gonic/gin"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"

	echogate "github.com/headgate/headgate/adapters/echo"
	echov5gate "github.com/headgate/headgate/adapters/echov5"
	gingate "github.com/headgate/headgate/adapters/gin"
	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

var byIdempotencyKey = keyfunc.Must(keyfunc.Header("Idempotency-Key"))

// says returns a handler that answers with a status, headers in lines, and a body.
func says(status int, headers, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for line := range strings.Lines(headers) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			w.Header().Add(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// deaf is a ResponseWriter whose client has left.
type deaf struct{ http.ResponseWriter }

func (deaf) Write([]byte) (int, error)       { return 0, errors.New("broken pipe") }
func (deaf) WriteString(string) (int, error) { return 0, errors.New("broken pipe") }

// What a retry gets, in every framework. The rows are what users of others expect: Stripe,
// draft-ietf-httpapi-idempotency-key-header-07, hono-idempotency, granit, concerns_on_rails, the Agentic
// Commerce Protocol, Fiber, ullun, idem and KeeperHub.
func TestAnswersAreRepeated(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file.bin")
	gatetest.NoError(t, os.WriteFile(file, []byte(strings.Repeat("\x00\xff\r\n\r\n", 20_000)), 0o600))
	final := func(_ *http.Request, status int) bool { return status != http.StatusServiceUnavailable }
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		cfg     nethttp.ReplayConfig
		retry   string // the body of the second request, "pay 1" if empty; behind a "?", the query
		status  int    // of the second response if it is not that of the first
		why     string // the answer is not repeated
		runs    int64  // of the handler, 1 if 0
		lacks   string // a header that is not repeated
		leaves  string // the first client, if not empty
	}{
		{name: "Stripe: status and body", handler: says(201, "Content-Type: application/json", `{"id":"pi_1"}`)},
		{name: "concerns_on_rails: Location, ETag and Link",
			handler: says(201, "Location: /payments/1\nETag: \"a\"\nLink: </1>; rel=a\nLink: </2>; rel=b", "made")},
		{name: "granit: no cookie", handler: says(200, "Set-Cookie: csrf=1", "ok"), lacks: "Set-Cookie"},
		{name: "granit: no challenge", handler: says(200, "Www-Authenticate: Negotiate x", "ok"), lacks: "Www-Authenticate"},
		{name: "a cookie that is named", handler: says(200, "Set-Cookie: a=1\nSet-Cookie: b=2", "ok"),
			cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{Headers: []string{"set-cookie"}}}},
		{name: "Fiber: a header that is named", handler: says(200, "X-Version: caf\xe9", "ok"),
			cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{Headers: []string{"x-version"}}}},
		{name: "IETF: another body", handler: says(201, "", "ok"), retry: "pay 2", status: 422},
		{name: "another query", handler: says(201, "", "ok"), retry: "pay 1?amount=2", status: 422},
		{name: "Agentic Commerce: 5xx runs again", handler: says(503, "", "later"), runs: 2},
		{name: "hono: 4xx runs again", handler: says(402, "", "declined"), runs: 2},
		{name: "KeeperHub: a final 4xx", handler: says(402, "", "declined"), cfg: nethttp.ReplayConfig{Succeeded: final}},
		{name: "a final 5xx", handler: says(500, "", "half done"), cfg: nethttp.ReplayConfig{Succeeded: final}, why: "server-error"},
		{name: "idem: a stream", why: "stream", handler: func(w http.ResponseWriter, r *http.Request) {
			says(200, "", "a")(w, r)
			_ = http.NewResponseController(w).Flush()
		}},
		{name: "events", why: "stream", handler: says(200, "Content-Type: text/event-stream", "data: 1\n\n")},
		{name: "ullun: an answer that is as large as may be", handler: says(200, "", strings.Repeat("a", 256<<10))},
		{name: "ullun: a larger one", handler: says(200, "", strings.Repeat("a", 256<<10+1)), why: "too-large"},
		{name: "a request that is as large as may be", handler: says(200, "", "ok"),
			cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{MaxBytes: 5}}},
		{name: "a larger request", handler: says(200, "", "ok"), why: "too-large",
			cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{MaxBytes: 4}}},
		{name: "a larger retry", handler: says(200, "", "ok"), retry: "pay 10", status: 422,
			cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{MaxBytes: 5}}},
		{name: "a part of a file", handler: says(206, "Content-Range: bytes 0-1/4", "ab")},
		{name: "a file", handler: func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }},
		{name: "a file that is too large", why: "too-large", cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{MaxBytes: 100}},
			handler: func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, file) }},
		{name: "a copy of a file", handler: func(w http.ResponseWriter, _ *http.Request) {
			f, err := os.Open(file)
			if err != nil {
				t.Error(err)
				return
			}
			defer f.Close()
			_, _ = io.Copy(w, f)
		}},
		{name: "copies, of which the first is as large as may be", why: "too-large",
			cfg: nethttp.ReplayConfig{Answers: nethttp.Answers{MaxBytes: 8}},
			handler: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.CopyN(w, strings.NewReader("12345678"), 8)
				_, _ = io.CopyN(w, strings.NewReader("abcd"), 4)
			}},
		{name: "a header that is set too late", lacks: "Location", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(201)
			if late, ok := w.(interface{ WriteHeaderNow() }); ok { // in gin the status alone sends nothing
				late.WriteHeaderNow()
			}
			w.Header().Set("Location", "/never-sent")
		}},
		{name: "a header behind an empty write", lacks: "Location", handler: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(nil)
			w.Header().Set("Location", "/never-sent")
		}},
		{name: "nothing", handler: func(http.ResponseWriter, *http.Request) {}},
		{name: "204", handler: says(204, "", "never sent")},
		{name: "a redirect", handler: says(303, "Location: /payments/1", "")},
		{name: "encoded", handler: says(200, "Content-Encoding: zstd\nContent-Type: text/plain", "\x28\xb5\x2f\xfd")},
		{name: "HTML without a type", handler: says(200, "", "<html><p>paid")},
		{name: "shorter than it says", handler: says(200, "Content-Length: 10", "abc"), why: "incomplete"},
		{name: "a client that leaves", leaves: "1", handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			for _, part := range []string{"paid", " ", "1"} {
				if _, err := w.Write([]byte(part)); err != nil {
					return
				}
				if _, err := io.WriteString(w, part); err != nil {
					return
				}
			}
		}},
		{name: "HandledStatus", handler: says(201, "", "ok"), status: 200, cfg: nethttp.ReplayConfig{HandledStatus: 200}},
	} {
		for _, fw := range frameworks {
			t.Run(fw.test()+"/"+tt.name, func(t *testing.T) {
				var runs atomic.Int64
				cfg := tt.cfg
				cfg.ID = byIdempotencyKey
				cfg.Once = core.Must(once.New(newFixture(t).gate, once.Config{Name: "ids", Window: time.Hour}))
				h := fw.around(func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Leaves") != "" {
							w = deaf{w}
						}
						h.ServeHTTP(w, r)
					})
				}, func(w http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					tt.handler(w, r)
				}, core.Must(nethttp.NewReplay(nil, cfg)))
				first := post(t, h, "k", "pay 1", tt.leaves)
				second := post(t, h, "k", cmp.Or(tt.retry, "pay 1"), "")
				want := cmp.Or(tt.status, first.status)
				if tt.why != "" {
					want = http.StatusConflict
				}
				repeated := tt.status == 0 && tt.why == "" && tt.runs == 0
				if second.status != want || second.header.Get("Idempotency-Not-Replayed") != tt.why ||
					(second.header.Get("Idempotency-Replayed") == "true") != repeated {
					t.Errorf("%d, want %d: %v", second.status, want, second.header)
				}
				gatetest.Equal(t, runs.Load(), cmp.Or(tt.runs, 1), "runs of the handler")
				if !repeated {
					return
				}
				if tt.leaves != "" {
					first.body = "paidpaid  11"
					first.header = http.Header{"Content-Type": {"text/plain"}}
				}
				gatetest.Equal(t, second.body, first.body, "%d bytes, want %d", len(second.body), len(first.body))
				for name, values := range first.header {
					wanted := name != tt.lacks && name != "Date" && name != "Content-Length" && name != "Transfer-Encoding" &&
						name != "Accept-Ranges"
					if wanted && !slices.Equal(values, second.header[name]) {
						t.Errorf("%s: %q, want %q", name, second.header[name], values)
					}
				}
				if tt.lacks != "" && second.header[tt.lacks] != nil {
					t.Errorf("%s: %q", tt.lacks, second.header[tt.lacks])
				}
			})
		}
	}
}

// The answer to a HEAD has the headers that the server has derived from the body. One that middleware
// outside compresses is kept as the handler has written it.
func TestAnswersAreRepeatedAlike(t *testing.T) {
	each(t, func(t *testing.T, fw framework) {
		for name, c := range map[string]struct {
			request string
			out     outside
			handler http.HandlerFunc
		}{
			"a body":     {"HEAD /users/1", same, says(200, "", "<html><p>paid")},
			"its length": {"HEAD /users/1", same, says(200, "Content-Length: 70000", "")},
			"compressed": {"POST /users/1 pay", chimiddleware.Compress(5), says(200, "Content-Type: text/plain", "paid")},
		} {
			f := newFixture(t)
			ids := core.Must(once.New(f.gate, once.Config{Name: "ids", Window: time.Hour}))
			replay := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{Once: ids, ID: byIdempotencyKey}))
			f.serve(func(*app) http.Handler { return fw.around(c.out, c.handler, replay) }, &app{}, false)
			first, second := f.ask(c.request, "Idempotency-Key: k"), f.ask(c.request, "Idempotency-Key: k")
			gatetest.Equal(t, second.Header.Get("Idempotency-Replayed"), "true", "%s: repeated", name)
			second.Header.Del("Idempotency-Replayed")
			gatetest.Equal(t, fmt.Sprint(second), fmt.Sprint(first), "%s: answer", name)
		}
	})
}

// An answer that a handler says it could not finish is not repeated, and the handler runs once. One that
// only tells its logs of an error is.
func TestBrokenAnswersAreNotRepeated(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	broken := func() io.Reader {
		return io.MultiReader(strings.NewReader("half"), iotest.ErrReader(errors.New("disk")))
	}
	for status, why := range map[int]string{200: "incomplete", 402: ""} {
		p := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
			Once: core.Must(once.New(newFixture(t).gate, once.Config{Name: "ids", Window: time.Hour})),
			ID:   byIdempotencyKey, AnyRoute: true, Succeeded: func(*http.Request, int) bool { return true },
		}))
		v4, v5, engine := echov4.New(), echo.New(), gin.New()
		v4.POST("/users/:id", func(c echov4.Context) error { return c.Stream(status, "text/plain", broken()) }, echogate.Middleware(p))
		v5.POST("/users/:id", func(c *echo.Context) error { return c.Stream(status, "text/plain", broken()) }, echov5gate.Middleware(p))
		engine.POST("/users/:id", gingate.Middleware(p), func(c *gin.Context) { c.DataFromReader(status, -1, "text/plain", broken(), nil) })
		v4.Logger.SetOutput(io.Discard)
		v5.Logger = slog.New(slog.DiscardHandler)
		for name, h := range map[string]http.Handler{"echo": v4, "echov5": v5, "gin": engine} {
			id := fmt.Sprint(name, status)
			first, second := post(t, h, id, "pay 1", ""), post(t, h, id, "pay 1", "")
			if first.status != status || second.header.Get("Idempotency-Not-Replayed") != why || (second.status == status) != (why == "") {
				t.Errorf("%s: %d, then %d, %v", id, first.status, second.status, second.header)
			}
		}
	}
}

// A handler of gin that dispatches its request again sends the answer around the Replay, which does not
// repeat what it has not seen.
func TestAnswersOfRedispatchAreNotRepeated(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	engine, runs := gin.New(), 0
	p := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
		Once: core.Must(once.New(newFixture(t).gate, once.Config{Name: "ids", Window: time.Hour})), ID: byIdempotencyKey,
	}))
	engine.POST("/users/:id", gingate.Middleware(p), func(c *gin.Context) {
		c.Request.URL.Path = "/paid"
		engine.HandleContext(c)
	})
	engine.POST("/paid", func(c *gin.Context) {
		runs++
		c.String([]int{503, 201}[runs-1], "paid")
	})
	for _, want := range []string{"503 paid", "201 paid", "409 unknown"} {
		got := post(t, engine, "k", "pay 1", "")
		if why := got.header.Get("Idempotency-Not-Replayed"); why != "" {
			got.body = why
		}
		gatetest.Equal(t, fmt.Sprint(got.status, " ", got.body), want, "answer")
	}
}

// reply is what a client gets.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a request with an id to a server of its own. Behind a "?" of the body is a query.
func post(t *testing.T, h http.Handler, id, body, leaves string) reply {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	body, query, _ := strings.Cut(body, "?")
	got, err := postTo(t.Context(), server.URL+"/users/1?"+query, id, body, leaves)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	return got
}

var answersClient = &http.Client{
	Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func postTo(ctx context.Context, url, id, body, leaves string) (reply, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	r.Header.Set("Idempotency-Key", id)
	r.Header.Set("Leaves", leaves)
	response, err := answersClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(text)}, err
}

// Sealed answers are not to be read in Redis, and open for as long as one of the keys is known, and under
// their own id alone.
func TestAnswersAreSealed(t *testing.T) {
	o := core.Must(once.New(newFixture(t).gate, once.Config{Name: "ids", Window: time.Hour}))
	a, b := []byte(strings.Repeat("a", 16)), []byte(strings.Repeat("b", 32))
	handler := func(keys ...[]byte) http.Handler {
		return core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
			Once: o, ID: byIdempotencyKey, AnyRoute: true, Answers: nethttp.Answers{Keys: keys},
		})).Handler(says(201, "Location: /secret", "card 4242"))
	}
	gatetest.Need(t, post(t, handler(a), "k", "pay", "").status, 201, "status")
	id := core.Must(core.NewKey(core.Must(byIdempotencyKey(&http.Request{Header: http.Header{"Idempotency-Key": {"k"}}}))))
	sealed, err := o.Answer(t.Context(), id)
	if err != nil || len(sealed) < 50 || strings.Contains(string(sealed), "4242") || strings.Contains(string(sealed), "secret") {
		t.Errorf("%q, %v", sealed, err)
	}
	for _, step := range []struct {
		keys   [][]byte
		status int
		why    string
	}{{[][]byte{b, a}, 201, ""}, {[][]byte{b}, 409, "sealed"}, {nil, 409, "sealed"}, {[][]byte{a}, 201, ""}} {
		got := post(t, handler(step.keys...), "k", "pay", "")
		if got.status != step.status || got.header.Get("Idempotency-Not-Replayed") != step.why {
			t.Errorf("with %d keys: %v", len(step.keys), got)
		}
	}
	other := core.Must(core.NewKey(core.Must(byIdempotencyKey(&http.Request{Header: http.Header{"Idempotency-Key": {"k2"}}}))))
	moved := gatetest.Must(o.Begin(t.Context(), other, 0))(t)
	gatetest.Worked(t, moved.SucceedWith(t.Context(), sealed))
	replayed := post(t, handler(a), "k2", "pay", "")
	gatetest.Equal(t, replayed.header.Get("Idempotency-Not-Replayed"), "sealed", "of another id")
	_, err = nethttp.NewReplay(nil, nethttp.ReplayConfig{
		Once: o, ID: byIdempotencyKey, Answers: nethttp.Answers{MaxBytes: -1, Keys: [][]byte{a, []byte("short")}},
	})
	for _, want := range []string{"Answers.MaxBytes is -1: it must be between 0 and 1048576", "Answers.Keys[1] has 5 bytes"} {
		gatetest.Contains(t, fmt.Sprint(err), want, "error")
	}
}

// What one host, mount or path has answered is told to no request for another, although the routes have
// the same pattern.
func TestAnswersOfOtherTargets(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string // URLs
		guarded       func(p *nethttp.Replay, mux *http.ServeMux) http.Handler
	}{
		"hosts": {"http://a.example/orders", "http://b.example/orders", func(p *nethttp.Replay, mux *http.ServeMux) http.Handler {
			for _, host := range []string{"a.example", "b.example"} {
				mux.Handle("POST "+host+"/orders", p.Handler(says(200, "", host)))
			}
			return mux
		}},
		"mounts": {"/a/orders", "/b/orders", func(p *nethttp.Replay, mux *http.ServeMux) http.Handler {
			for _, mount := range []string{"/a", "/b"} {
				inner := http.NewServeMux()
				inner.Handle("POST /orders", p.Handler(says(200, "", mount)))
				mux.Handle(mount+"/", http.StripPrefix(mount, inner))
			}
			return mux
		}},
		"escapes": {"/files/a%2Fb", "/files/a/b", func(p *nethttp.Replay, mux *http.ServeMux) http.Handler {
			mux.Handle("POST /files/{name}", says(200, "", "one"))
			mux.Handle("POST /files/a/b", says(200, "", "two"))
			return p.Handler(mux)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.guarded(core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
				ID: byIdempotencyKey, Once: core.Must(once.New(newFixture(t).gate, once.Config{Name: "ids", Window: time.Hour})),
			})), http.NewServeMux())
			send := func(url string) (int, string) {
				r, w := httptest.NewRequest("POST", url, strings.NewReader("pay")), httptest.NewRecorder()
				r.Header.Set("Idempotency-Key", "k")
				h.ServeHTTP(w, r)
				return w.Code, w.Body.String()
			}
			status, first := send(c.first)
			if again, same := send(c.first); status != 200 || again != 200 || same != first {
				t.Errorf("%d %q, then %d %q", status, first, again, same)
			}
			if status, other := send(c.second); status != http.StatusUnprocessableEntity || strings.Contains(other, first) {
				t.Errorf("for another target: %d %q", status, other)
			}
		})
	}
}

// An adapter that does not tell of the response has none kept, rather than an empty one.
func TestAnswersOfOtherAdapters(t *testing.T) {
	p := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
		ID: byIdempotencyKey, Once: core.Must(once.New(newFixture(t).gate, once.Config{Name: "ids", Window: time.Hour})),
	}))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := p.Admit(r)
		x.WriteHeaders(w.Header())
		if !x.Allowed() {
			p.Refuse(w, r, &x.Admission)
		} else if _, err := io.WriteString(w, "paid"); err != nil {
			t.Error(err)
		}
		x.Finish(r, http.StatusOK)
	})
	for _, want := range []string{"200 ", "409 unknown"} {
		got := post(t, h, "k", "pay", "")
		gatetest.Equal(t, fmt.Sprint(got.status, " ", got.header.Get("Idempotency-Not-Replayed")), want, "got")
	}
}

const answersEnv = "HEADGATE_ANSWERS_TEST" // framework, number of the process, address and prefix

// TestAnswersServer is the process that TestAnswersSurviveKills kills. Its handler makes a payment that has
// a unique index on the id, and answers with the payment's number and one of its own.
func TestAnswersServer(t *testing.T) {
	var name, number, addr, prefix string
	if _, err := fmt.Sscan(os.Getenv(answersEnv), &name, &number, &addr, &prefix); err != nil {
		t.Skip("runs in a process of its own")
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	gate := core.Must(core.NewRedis(client, core.Config{Prefix: prefix, Timeout: gatetest.BusyTimeout}))
	replay := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
		Once: core.Must(once.New(gate, once.Config{Name: "payments", Window: time.Hour, TTL: time.Second})),
		ID:   byIdempotencyKey, Answers: nethttp.Answers{Keys: [][]byte{[]byte("0123456789abcdef")}},
	}))
	pay := func(w http.ResponseWriter, r *http.Request) {
		ctx, id, own := context.WithoutCancel(r.Context()), prefix+r.Header.Get("Idempotency-Key"), rand.Text()
		if err := client.RPush(ctx, id+":runs", number).Err(); err != nil {
			http.Error(w, "no database", http.StatusServiceUnavailable)
			return
		}
		made, err := client.SetNX(ctx, id+":payment", own, time.Hour).Result()
		if err == nil && made {
			err = client.Incr(ctx, id+":made").Err()
		}
		payment, other := client.Get(ctx, id+":payment").Result()
		if err != nil || other != nil {
			http.Error(w, "no database", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Location", "/payments/"+payment)
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintln(w, payment, own, strings.Repeat(own, mathrand.IntN(300)))
	}
	at := slices.IndexFunc(frameworks, func(fw framework) bool { return fw.test() == name })
	server := httptest.NewServer(frameworks[at].around(func(h http.Handler) http.Handler { return h }, pay, replay))
	defer server.Close()
	fmt.Println("at " + server.URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until it is killed
}

// A client that asks until it has two answers gets the same bytes twice, however often the server is killed
// at random moments. The payment is made once, and its handler runs again only in a later process.
func TestAnswersSurviveKills(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	posts := 60
	if gatetest.Long() {
		posts = 2000
	}
	for _, fw := range frameworks {
		framework := fw.test()
		t.Run(framework, func(t *testing.T) {
			t.Parallel()
			k := &killing{T: t, setting: framework + " %d " + s.Addr + " " + s.Prefix}
			k.spawn()
			ids := make(chan string)
			var clients sync.WaitGroup
			for range 16 {
				clients.Go(func() {
					for id := range ids {
						k.askTwice(id)
					}
				})
			}
			for i := range posts {
				ids <- fmt.Sprintf("%s-%d", framework, i)
			}
			close(ids)
			clients.Wait()
			client, again := s.Client(t), 0
			for i := range posts {
				id := fmt.Sprintf("%s%s-%d", s.Prefix, framework, i)
				made := client.Get(t.Context(), id+":made").Val()
				runs := client.LRange(t.Context(), id+":runs", 0, -1).Val()
				if made != "" && made != "1" || len(slices.Compact(slices.Clone(runs))) != len(runs) {
					t.Errorf("%s was paid %s times, by processes %v", id, made, runs)
				}
				again += len(runs) - 1
			}
			t.Logf("%d posts, %d kills, %d handlers cut short, %d answers repeated", posts, k.kills, again, k.repeated.Load())
			if k.kills == 0 || k.repeated.Load() < int64(posts) {
				t.Error("too few")
			}
		})
	}
}

// killing is a server that is killed again and again, and its clients.
type killing struct {
	*testing.T
	setting  string
	repeated atomic.Int64

	mu    sync.Mutex
	kill  func()
	kills int
	left  int // answers until the next kill
	url   string
}

func (k *killing) spawn() {
	var lines *bufio.Scanner
	_, lines, k.kill = redistest.StartKillable(k.T, "TestAnswersServer", answersEnv+"="+fmt.Sprintf(k.setting, k.kills))
	for lines.Scan() {
		if url, ok := strings.CutPrefix(lines.Text(), "at "); ok {
			k.url, k.left = url, 3+mathrand.IntN(40)
			return
		}
	}
	k.Error("the server has not begun")
}

// tick kills the server at a random answer.
func (k *killing) tick() (url string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left--; k.left <= 0 {
		k.kill()
		k.kills++
		k.spawn()
	}
	return k.url
}

// askTwice asks until it has two answers.
func (k *killing) askTwice(id string) {
	var first string
	for giveUp := time.Now().Add(gatetest.LongTimeout); time.Now().Before(giveUp) && !k.Failed(); {
		response, err := postTo(k.Context(), k.tick()+"/users/1", id, "pay "+id, "")
		switch {
		case err != nil || response.status == http.StatusServiceUnavailable:
		case response.status == http.StatusConflict && response.header.Get("Retry-After") != "":
			<-time.After(20 * time.Millisecond)
		case response.status != http.StatusCreated:
			k.Errorf("%s: %v", id, response)
			return
		case response.header.Get("Idempotency-Replayed") == "" && first != "":
			k.Errorf("%s was paid again: %q, %q", id, first, response.body)
			return
		case first == "":
			first = response.header.Get("Location") + response.body
		default:
			k.repeated.Add(1)
			if again := response.header.Get("Location") + response.body; again != first {
				k.Errorf("%s: %q, and first %q", id, again, first)
			}
			return
		}
	}
	k.Errorf("%s has no two answers", id)
}
