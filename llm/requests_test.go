package llm_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	messagesPath  = "/v1/messages"
)

// A request that cannot be estimated is refused in its own format, spends nothing and is not passed
// on.
func TestRefusalsSpendNothing(t *testing.T) {
	models := func(cfg *llm.Config) { cfg.Models = map[string]llm.Model{"known": {}} }
	small := func(cfg *llm.Config) { cfg.MaxBody = 20 }
	failing := func(err error) func(*llm.Config) {
		return func(cfg *llm.Config) {
			cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) {
				return llm.Usage{Input: 1}, err
			}
		}
	}
	other := func(cfg *llm.Config) {
		cfg.Other = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if string(body) != `{"model":"m"}` {
				http.Error(w, string(body), http.StatusInternalServerError)
			}
			http.Error(w, "short and stout", http.StatusTeapot)
		})
	}
	openAI := func(message, kind, code string) string {
		return fmt.Sprintf(`{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`, message, kind, code)
	}
	anthropic := func(message, kind string) string {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%q}}`, kind, message)
	}
	invalid := func(message string) string { return openAI(message, "invalid_request_error", "invalid_request") }
	const request, m = "invalid_request_error", `{"model":"m"}`
	const malformed = "Malformed request: it is not one JSON document, or nests too deeply."
	const unknown, long = "The model is not known here.", "The body is too long."
	const encoded, unestimated = "The body must be UTF-8 without a Content-Encoding.", "The request could not be estimated."
	for _, c := range []struct {
		name, path, body string
		header           string // a Content-Encoding, or that the body comes in chunks
		change           func(*llm.Config)
		status           int
		want             string
	}{
		{"malformed", chatPath, `{"model":`, "", nil, 400, invalid(malformed)},
		{"malformed responses", responsesPath, `nonsense`, "", nil, 400, invalid(malformed)},
		{"malformed messages", messagesPath, `[1]`, "", nil, 400, anthropic("Malformed request: it is no object.", request)},
		{"empty", chatPath, "", "", nil, 400, invalid(malformed)},
		{"no model", chatPath, `{}`, "", nil, 400, invalid("Malformed request: model is missing.")},
		{"negative max_tokens", chatPath, `{"model":"m","max_tokens":-3}`, "", nil, 400,
			invalid("Malformed request: max_tokens is no integer of at least 0.")},
		{"absurd max_tokens", messagesPath, `{"model":"m","max_tokens":99999999999999999999}`, "", nil, 400,
			anthropic("Malformed request: max_tokens is more than 1000000000.", request)},
		{"unknown model", chatPath, m, "", models, 404, openAI(unknown, request, "model_not_found")},
		{"unknown model of messages", messagesPath, m, "", models, 404, anthropic(unknown, "not_found_error")},
		{"known model in another case", chatPath, `{"model":"KNOWN"}`, "", models, 404, openAI(unknown, request, "model_not_found")},
		{"long", chatPath, `{"model":"m","n":12}  `, "", small, 413, openAI(long, request, "request_too_large")},
		{"long in chunks", messagesPath, `{"model":"m","n":12}  `, "chunked", small, 413, anthropic(long, "request_too_large")},
		{"longer than the default", chatPath, strings.Repeat(" ", 8<<20+1), "", nil, 413, openAI(long, request, "request_too_large")},
		{"encoded", chatPath, m, "gzip", nil, 415, invalid(encoded)},
		{"encoded messages", messagesPath, m, "br", nil, 415, anthropic(encoded, request)},
		{"estimate refuses", chatPath, m, "", failing(fmt.Errorf("%w: too many images", llm.ErrRequest)), 400,
			invalid("Malformed request: too many images.")},
		{"estimate fails", chatPath, m, "", failing(errors.New("secret")), 500, openAI(unestimated, "server_error", "server_error")},
		{"estimate of messages fails", messagesPath, m, "", failing(errors.New("secret")), 500, anthropic(unestimated, "api_error")},
		{"unknown path", "/v1/moderations", m, "", nil, 404, "404 page not found"},
		{"other", "/v1/moderations", m, "", other, 418, "short and stout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, c.change)
			q := r.request(c.path, c.body)
			if c.header == "chunked" {
				q.ContentLength = -1
			} else if c.header != "" {
				q.Header.Set("Content-Encoding", c.header)
			}
			response := gatetest.Must(plainClient.Do(q))(t)
			if body := read(t, response); response.StatusCode != c.status ||
				strings.TrimSpace(body) != c.want {
				t.Errorf("%d %s, want %d %s", response.StatusCode, body, c.status, c.want)
			}
			h := response.Header
			if c.status < 418 && c.path != "/v1/moderations" &&
				(h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store") {
				t.Errorf("headers %v", response.Header)
			}
			r.unasked()
		})
	}
}

// The longest body that is allowed passes, in chunks too, and gets its length on the way.
func TestLongestBodyPasses(t *testing.T) {
	body := `{"model":"m","n":12}`
	for _, length := range []int64{int64(len(body)), -1} {
		r := newRig(t, core.UnitTokens, 100_000, func(cfg *llm.Config) { cfg.MaxBody = int64(len(body)) })
		r.answer = func(w http.ResponseWriter, q *http.Request) {
			if q.ContentLength != int64(len(body)) || len(q.TransferEncoding) > 0 {
				t.Errorf("%d bytes, %v", q.ContentLength, q.TransferEncoding)
			}
			chat(1, 1)(w, q)
		}
		q := r.request(chatPath, body)
		q.ContentLength = length
		response := gatetest.Must(plainClient.Do(q))(t)
		read(t, response)
		r.want(llm.OutcomeReported, llm.Usage{Input: 1, Output: 1}, 2)
		gatetest.Equal(t, r.asked[0], body, "the upstream was asked")
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	for name, head := range map[string]string{
		"with a length": "Content-Length: 100\r\n\r\n{\"model\":\"m\"}",
		"in chunks":     "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"model\":\"m\"}\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, nil)
			conn := gatetest.Must(net.Dial("tcp", strings.TrimPrefix(r.url, "http://")))(t)
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\n%s", chatPath, head)
			gatetest.NoError(t, conn.(*net.TCPConn).CloseWrite())
			response := gatetest.Must(http.ReadResponse(bufio.NewReader(conn), nil))(t)
			if body := read(t, response); response.StatusCode != 400 ||
				!strings.Contains(body, "The body breaks off.") {
				t.Errorf("%d %s", response.StatusCode, body)
			}
			r.unasked()
		})
	}
}

func TestOuterBodyLimit(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	r.serve(http.MaxBytesHandler(r.meter.Handler(http.NotFoundHandler()), 5))
	status, _ := r.ask(chatPath, `{"model":"m"}`)
	gatetest.Equal(t, status, 413, "status")
	q, w := httptest.NewRequest(http.MethodPost, chatPath, nil), httptest.NewRecorder()
	q.Body = nil
	r.meter.Handler(http.NotFoundHandler()).ServeHTTP(w, q)
	gatetest.Equal(t, w.Code, 400, "status without a body")
	r.unasked()
}

// A panic of a function of the Config goes through and spends nothing. One of Config.Observe comes
// after the budgets are settled.
func TestPanicsOfFunctions(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*llm.Config)
		used   int64
	}{
		"Estimate": {func(cfg *llm.Config) {
			cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) { panic("own") }
		}, 0},
		"Key": {func(cfg *llm.Config) { cfg.Budgets[0].Key = func(*http.Request) (string, error) { panic("own") } }, 0},
		"Guard.Plan": {func(cfg *llm.Config) {
			cfg.Guard.Plan = func(*http.Request) (core.Plan, error) { panic("own") }
		}, 0},
		"Skip": {func(cfg *llm.Config) { cfg.Budgets[0].Skip = func(*http.Request) bool { panic("own") } }, 0},
		"Guard.Observe": {func(cfg *llm.Config) {
			cfg.Guard.Observe = func(context.Context, core.Event) { panic("own") }
		}, 0},
		"Observe": {func(cfg *llm.Config) {
			cfg.Observe = func(context.Context, core.Event) { panic("own") }
		}, 18},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, c.change)
			func() {
				defer func() {
					gatetest.Equal(t, recover(), "own", "panic")
				}()
				q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(streamed))
				q.Header.Set("X-Tenant", "acme")
				r.meter.Handler(http.HandlerFunc(chat(7, 11))).ServeHTTP(httptest.NewRecorder(), q)
			}()
			d := gatetest.Must(r.gate.Peek(t.Context(), r.charge()))(t)
			gatetest.Equal(t, d.At(0).Used, c.used, "units are used")
		})
	}
}

// A server may answer while it reads the body, and the client of an HTTP/2 server closes it then
// while it reads it.
func TestServerAnswersBeforeItHasRead(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "busy", http.StatusTooManyRequests)
		}))
		upstream.EnableHTTP2 = http2
		upstream.StartTLS()
		r := newRig(t, core.UnitTokens, 1000, nil)
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			out, err := http.NewRequestWithContext(q.Context(), http.MethodPost, upstream.URL, q.Body)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := upstream.Client().Do(out)
			if err != nil {
				http.Error(w, "unreachable", http.StatusBadGateway) // HTTP/1 may reset the connection
				return
			}
			defer response.Body.Close()
			w.WriteHeader(response.StatusCode)
			_, _ = io.Copy(w, response.Body)
		})
		body := `{"model":"m","prompt":"` + strings.Repeat("a", 4<<20) + `"}`
		for range 5 {
			response := r.post(chatPath, body)
			if response.StatusCode != 429 && http2 {
				t.Errorf("status %d", response.StatusCode)
			}
			read(t, response)
			r.want(llm.OutcomeFailed, llm.Usage{}, 0)
		}
		upstream.Close()
	}
}

// limitUnder is a plan.
type limitUnder map[string]core.Algorithm

func (l limitUnder) Algorithm(policy string) core.Algorithm { return l[policy] }

func (limitUnder) Cap(string) (limit, share, floor int64) { return 0, 0, 0 }

// A budget that does not apply to a request is not charged, while the stream runs either.
func TestBudgetsThatDoNotApply(t *testing.T) {
	skipped, users := policy("skipped", core.UnitTokens, 9), policy("users", core.UnitTokens, 9)
	plans := policy("plans", core.UnitTokens, 9)
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.ChargeEvery, cfg.Overrun = 2, llm.OverrunEnd
		cfg.Budgets = append(cfg.Budgets,
			llm.Budget{Policy: skipped, Key: tenant, Skip: func(q *http.Request) bool {
				return q.Header.Get("X-User") == ""
			}},
			llm.Budget{Policy: users, Key: user, NoKey: nethttp.NoKeySkip},
			llm.Budget{Policy: plans, Key: tenant})
		cfg.Guard.Plan = func(*http.Request) (core.Plan, error) {
			return limitUnder{"plans": core.PerMinute(1000)}, nil
		}
	})
	r.handle(events(20, func(w http.ResponseWriter, q *http.Request) { chat(7, 20)(w, q) })) // a charge follows each event
	if body := read(t, r.post(chatPath, small)); !strings.HasSuffix(body, "data: [DONE]\n\n") ||
		strings.Contains(body, "error") {
		t.Errorf("the client was sent %s", body)
	}
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 20}, 27)
	gatetest.Equal(t, fmt.Sprint(r.peekUsed()[:3]), "[27 0 0]", "are used")
}

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
				gatetest.Equal(t, <-refused, http.StatusServiceUnavailable, "got")
				<-ends
				break
			}
			clients = append(clients, client)
		}
		if stalled < 2 || stalled > 5 {
			t.Errorf("%d bodies of a tenant fit", stalled)
		}
		gatetest.Equal(t, post("globex", strings.NewReader(whole)), http.StatusOK, "another tenant gets")
		for _, c := range clients {
			c.CloseWithError(io.ErrUnexpectedEOF)
			<-ends
		}
		gatetest.Equal(t, post("acme", strings.NewReader(whole)), http.StatusOK, "after its bodies")
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
				response := gatetest.Must(http.ReadResponse(bufio.NewReader(near), nil))(t)
				gatetest.Equal(t, response.StatusCode, c.status, "got")
			})
		})
	}
}

// A client that states a megabyte and sends a byte takes the memory of what has come.
func TestStatedLengthTakesNoMemory(t *testing.T) {
	const size, clients = 1 << 20, 100
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) { cfg.MaxBody, cfg.MaxBodies = size, size })
	h := r.meter.Handler(http.HandlerFunc(ok))
	var running sync.WaitGroup
	defer running.Wait() // after all clients have closed
	for range clients {
		body, client := io.Pipe()
		running.Go(func() {
			q, w := httptest.NewRequest(http.MethodPost, chatPath, body), httptest.NewRecorder()
			q.ContentLength = size
			h.ServeHTTP(w, q)
			body.Close() // as a server does
			gatetest.Equal(t, w.Code, http.StatusBadRequest, "status")
		})
		gatetest.Worked(t, gatetest.Err(client.Write([]byte("{"))))
		defer client.CloseWithError(io.ErrUnexpectedEOF)
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
			response := gatetest.Must(client.Do(r.request(chatPath, body)))(t)
			gatetest.Must(io.ReadFull(response.Body, make([]byte, 3*len(word))))(t)
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
		for range streams {
			<-r.reports // another turn would find no room for its own
		}
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
