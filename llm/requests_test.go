package llm_test

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
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
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
	const openAI = `{"error":{"message":%q,"type":%q,"param":null,"code":%q}}`
	const anthropic = `{"type":"error","error":{"type":%q,"message":%q}}`
	invalid := func(message string) string {
		return fmt.Sprintf(openAI, message, "invalid_request_error", "invalid_request")
	}
	for _, c := range []struct {
		name, path, body string
		header           []string
		change           func(*llm.Config)
		status           int
		want             string
	}{
		{name: "malformed", path: chatPath, body: `{"model":`, status: 400,
			want: invalid("Malformed request: it is not one JSON document, or nests too deeply.")},
		{name: "malformed responses", path: responsesPath, body: `nonsense`, status: 400,
			want: invalid("Malformed request: it is not one JSON document, or nests too deeply.")},
		{name: "malformed messages", path: messagesPath, body: `[1]`, status: 400,
			want: fmt.Sprintf(anthropic, "invalid_request_error", "Malformed request: it is no object.")},
		{name: "empty", path: chatPath, status: 400,
			want: invalid("Malformed request: it is not one JSON document, or nests too deeply.")},
		{name: "no model", path: chatPath, body: `{}`, status: 400,
			want: invalid("Malformed request: model is missing.")},
		{name: "negative max_tokens", path: chatPath, body: `{"model":"m","max_tokens":-3}`, status: 400,
			want: invalid("Malformed request: max_tokens is no integer of at least 0.")},
		{name: "absurd max_tokens", path: messagesPath, status: 400,
			body: `{"model":"m","max_tokens":99999999999999999999}`,
			want: fmt.Sprintf(anthropic, "invalid_request_error",
				"Malformed request: max_tokens is more than 1000000000.")},
		{name: "unknown model", path: chatPath, body: `{"model":"m"}`, change: models, status: 404,
			want: fmt.Sprintf(openAI, "The model is not known here.", "invalid_request_error", "model_not_found")},
		{name: "unknown model of messages", path: messagesPath, body: `{"model":"m"}`, change: models, status: 404,
			want: fmt.Sprintf(anthropic, "not_found_error", "The model is not known here.")},
		{name: "known model in another case", path: chatPath, body: `{"model":"KNOWN"}`, change: models, status: 404,
			want: fmt.Sprintf(openAI, "The model is not known here.", "invalid_request_error", "model_not_found")},
		{name: "long", path: chatPath, body: `{"model":"m","n":12}  `, change: small, status: 413,
			want: fmt.Sprintf(openAI, "The body is too long.", "invalid_request_error", "request_too_large")},
		{name: "long in chunks", path: messagesPath, body: `{"model":"m","n":12}  `,
			header: []string{"Chunked", "1"}, change: small, status: 413,
			want: fmt.Sprintf(anthropic, "request_too_large", "The body is too long.")},
		{name: "encoded", path: chatPath, body: `{"model":"m"}`,
			header: []string{"Content-Encoding", "gzip"}, status: 415,
			want: invalid("The body must be UTF-8 without a Content-Encoding.")},
		{name: "encoded messages", path: messagesPath, body: `{"model":"m"}`,
			header: []string{"Content-Encoding", "br"}, status: 415,
			want: fmt.Sprintf(anthropic, "invalid_request_error",
				"The body must be UTF-8 without a Content-Encoding.")},
		{name: "estimate refuses", path: chatPath, body: `{"model":"m"}`, status: 400,
			change: failing(fmt.Errorf("%w: too many images", llm.ErrRequest)),
			want:   invalid("Malformed request: too many images.")},
		{name: "estimate fails", path: chatPath, body: `{"model":"m"}`,
			change: failing(errors.New("secret")), status: 500,
			want: fmt.Sprintf(openAI, "The request could not be estimated.", "server_error", "server_error")},
		{name: "estimate of messages fails", path: messagesPath, body: `{"model":"m"}`,
			change: failing(errors.New("secret")), status: 500,
			want: fmt.Sprintf(anthropic, "api_error", "The request could not be estimated.")},
		{name: "unknown path", path: "/v1/moderations", body: `{"model":"m"}`, status: 404,
			want: "404 page not found"},
		{name: "other", path: "/v1/moderations", body: `{"model":"m"}`,
			status: 418, want: "short and stout", change: func(cfg *llm.Config) {
				cfg.Other = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if string(body) != `{"model":"m"}` {
						http.Error(w, string(body), http.StatusInternalServerError)
					}
					http.Error(w, "short and stout", http.StatusTeapot)
				})
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, c.change)
			q := r.request(c.path, c.body, c.header...)
			if q.Header.Get("Chunked") != "" {
				q.ContentLength = -1
			}
			response, err := plainClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
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
		response, err := plainClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		read(t, response)
		if r.want(llm.OutcomeReported, llm.Usage{Input: 1, Output: 1}, 2); r.asked[0] != body {
			t.Errorf("the upstream was asked %s", r.asked[0])
		}
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	for name, head := range map[string]string{
		"with a length": "Content-Length: 100\r\n\r\n{\"model\":\"m\"}",
		"in chunks":     "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"model\":\"m\"}\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, nil)
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nX-Tenant: acme\r\n%s", chatPath, head)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
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
	if response := r.post(chatPath, `{"model":"m"}`); response.StatusCode != 413 {
		t.Errorf("status %d", response.StatusCode)
	}
	r.unasked()
}

func TestRequestWithoutBody(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	q := httptest.NewRequest(http.MethodPost, chatPath, nil)
	q.Body = nil
	w := httptest.NewRecorder()
	if r.meter.Handler(http.NotFoundHandler()).ServeHTTP(w, q); w.Code != 400 {
		t.Errorf("status %d", w.Code)
	}
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
			w := httptest.NewRecorder()
			q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(streamed))
			q.Header.Set("X-Tenant", "acme")
			func() {
				defer func() {
					if p := recover(); p != "own" {
						t.Errorf("panic %v", p)
					}
				}()
				r.meter.Handler(http.HandlerFunc(chat(7, 11))).ServeHTTP(w, q)
			}()
			key := core.Must(core.NewKey(core.Must(tenant(q))))
			d, err := r.gate.Peek(t.Context(),
				core.Charge{Policy: r.budget, Key: key, Cost: core.NoCost})
			if err != nil || d.At(0).Used != c.used {
				t.Errorf("%d units are used, %v", d.At(0).Used, err)
			}
		})
	}
}

// A model that is not in Models counts as the dearest of them under each budget.
func TestDearestModel(t *testing.T) {
	tokens, money := policy("tokens", core.UnitTokens, 1000), policy("money", core.UnitMicroDollars, 1000)
	r := newRig(t, core.UnitOutputTokens, 1000, func(cfg *llm.Config) {
		cfg.UnknownModel = llm.UnknownModelDearest
		cfg.Models = map[string]llm.Model{
			"cheap": {Tariff: llm.Tariff{Price: llm.Price{Input: 1, Output: 1_000_000}}},
			"dear":  {Tariff: llm.Tariff{Price: llm.Price{Input: 5_000_000, Output: 5_000_000}}},
		}
		cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: tokens, Key: tenant},
			llm.Budget{Policy: money, Key: tenant})
	})
	r.answer = chat(7, 11)
	read(t, r.post(chatPath, streamed))
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 11)
	if a, b := r.usedOf(tokens), r.usedOf(money); a != 18 || b != 90 {
		t.Errorf("%d tokens and %d micro-dollars are used", a, b)
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
	if got := fmt.Sprint(r.peekUsed()[:3]); got != "[27 0 0]" {
		t.Errorf("%s are used", got)
	}
}
