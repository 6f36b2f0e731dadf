package llm_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// apiError is what the clients of both APIs read of a refusal.
type apiError struct {
	Type  string
	Error struct {
		Message, Type, Code string
	}
}

func readAPIError(t *testing.T, r *http.Response) apiError {
	t.Helper()
	var e apiError
	if err := json.Unmarshal([]byte(body(t, r)), &e); err != nil || e.Error.Message == "" {
		t.Errorf("%+v: %v", e, err)
	}
	gatetest.Equal(t, r.Header.Get("Content-Type"), "application/json", "Content-Type")
	return e
}

// The type and the code say whether requests, tokens or a budget are spent, or that no wait helps.
func TestOpenAIErrorByUnit(t *testing.T) {
	type policies []core.PolicyConfig
	monthly := core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC}
	perDay := core.FixedWindow{Limit: 100, Window: 24 * time.Hour}
	const requests, tokens = "requests/rate_limit_exceeded", "tokens/rate_limit_exceeded"
	const budget = "insufficient_quota/insufficient_quota"
	const large = "invalid_request_error/request_too_large"
	statuses := map[string]int{requests: 429, tokens: 429, budget: 429, large: 413, "invalid_request_error/not_in_plan": 403}
	for _, tt := range []struct {
		name     string
		policies policies
		cost     int64
		within   time.Duration
		want     string
	}{
		{"requests a minute", policies{{Name: "p", Algorithm: core.PerMinute(100)}}, 60, 0, requests},
		{"requests a day", policies{{Name: "p", Algorithm: perDay}}, 60, 0, requests},
		{"requests a month", policies{{Name: "p", Algorithm: monthly}}, 60, 0, requests},
		{"tokens a minute", policies{{Name: "p", Algorithm: core.PerMinute(100), Unit: core.UnitTokens}}, 60, 0, tokens},
		{"input tokens a minute", policies{{Name: "p", Algorithm: core.PerMinute(100), Unit: core.UnitInputTokens}}, 60, 0, tokens},
		{"output tokens a minute", policies{{Name: "p", Algorithm: core.PerMinute(100), Unit: core.UnitOutputTokens}}, 60, 0, tokens},
		{"money a minute", policies{{Name: "p", Algorithm: core.PerMinute(100), Unit: core.UnitMicroDollars}}, 60, 0, tokens},
		{"tokens in any minute", policies{{Name: "p", Algorithm: core.AnyMinute(100), Unit: core.UnitTokens}}, 100, 0, tokens},
		{"tokens a day", policies{{Name: "p", Algorithm: perDay, Unit: core.UnitTokens}}, 60, 0, budget},
		{"tokens a day, and patience", policies{{Name: "p", Algorithm: perDay, Unit: core.UnitTokens}}, 60, 24 * time.Hour, tokens},
		{"an hour's tokens, soon back", policies{{Name: "p", Algorithm: core.PerHour(100), Unit: core.UnitTokens}}, 51, 2 * time.Minute, tokens},
		{"tokens a month", policies{{Name: "p", Algorithm: monthly, Unit: core.UnitTokens}}, 60, 0, budget},
		{"money a month", policies{{Name: "p", Algorithm: monthly, Unit: core.UnitMicroDollars}}, 60, 0, budget},
		{"a session", policies{{Name: "p", Algorithm: core.TokenBucket{Burst: 100, Per: time.Hour}, Unit: core.UnitTokens}}, 60, 0, budget},
		{"credit", policies{{Name: "p", Algorithm: core.TokenBucket{Burst: 100}, Unit: core.UnitMicroDollars}}, 60, 0, budget},
		{"no tokens", policies{{Name: "p", Algorithm: core.DenyAll{}, Unit: core.UnitTokens}}, 60, 0, "invalid_request_error/not_in_plan"},
		{"more tokens than a minute has", policies{{Name: "p", Algorithm: core.PerMinute(100), Unit: core.UnitTokens}}, 101, 0, large},
		{"more tokens than a month has", policies{{Name: "p", Algorithm: monthly, Unit: core.UnitTokens}}, 101, 0, large},
		{"the longest denial is a budget", policies{
			{Name: "rpm", Algorithm: core.PerMinute(100)}, {Name: "tpm", Algorithm: core.PerMinute(100), Unit: core.UnitTokens},
			{Name: "budget", Algorithm: monthly, Unit: core.UnitTokens},
		}, 60, 0, budget},
		{"the longest denial is of requests", policies{
			{Name: "tpm", Algorithm: core.PerMinute(100), Unit: core.UnitTokens}, {Name: "rpd", Algorithm: perDay},
		}, 60, 0, requests},
		{"a shadow does not deny", policies{
			{Name: "new", Algorithm: monthly, Unit: core.UnitTokens, Shadow: true}, {Name: "rpm", Algorithm: core.PerMinute(100)},
		}, 60, 0, requests},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := nethttp.Config{Gate: memory(t, aClock()), Dialect: llm.OpenAI{RetryWithin: tt.within}}
			for _, p := range tt.policies {
				cfg.Rules = append(cfg.Rules, spends(t, tt.cost, p))
			}
			h := guard(t, cfg).Handler(http.HandlerFunc(ok))
			get(h)
			r := get(h)
			e := readAPIError(t, r)
			if got := e.Error.Type + "/" + e.Error.Code; r.StatusCode != statuses[tt.want] || got != tt.want {
				t.Errorf("%d, %s, want %s", r.StatusCode, got, tt.want)
			}
		})
	}
}

// All other refusals have the status, the error and the advice on retries that clients know: they give
// up only if no retry helps and they would try.
func TestRefusals(t *testing.T) {
	limit := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1), Unit: core.UnitTokens, OnFailure: core.FailClosed}
	none := core.PolicyConfig{Name: "p", Algorithm: core.DenyAll{}}
	of := func(p core.PolicyConfig, fails error) []nethttp.Rule {
		return []nethttp.Rule{{Policy: gatetest.Policy(t, p), Key: func(r *http.Request) (string, error) { return r.RemoteAddr, fails }}}
	}
	block := func(hide bool) []nethttp.BlockRule {
		return []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 1, Within: time.Second, For: 5 * time.Second}),
			Key:    keyfunc.RemoteIP(), Strikes: nethttp.StrikeOn(http.StatusOK), HideRetryAfter: hide,
		}}
	}
	free := of(core.PolicyConfig{Name: "free", Algorithm: core.Unlimited{}}, nil)
	deny := func(*http.Request) bool { return true }
	of2, of3 := "All 2 concurrent requests of policy \"streams\" are in use", "All 3 concurrent requests of policy \"tenant\" are in use."
	for _, tt := range []struct {
		name      string
		cfg       nethttp.Config
		handled   int      // the status of a Replay
		crowd     []string // users of crowded. The last one is refused.
		before    int
		retry     string
		openAI    string // status, type and code
		anthropic string // status and type
		message   string
	}{
		{"no key", nethttp.Config{Rules: of(limit, keyfunc.ErrNoKey)}, 0, nil, 0, ", , ",
			"400 invalid_request_error", "400 invalid_request_error", "The request lacks the key of its rate limit."},
		{"a failing key", nethttp.Config{Rules: of(limit, io.ErrUnexpectedEOF)}, 0, nil, 0, ", , ",
			"500 server_error", "500 api_error", "Internal Server Error"},
		{"denied", nethttp.Config{Rules: of(limit, nil), Deny: deny}, 0, nil, 0, ", , ",
			"403 invalid_request_error", "403 permission_error", "Forbidden"},
		{"not in the plan", nethttp.Config{Rules: of(none, nil)}, 0, nil, 0, ", , false",
			"403 invalid_request_error not_in_plan", "403 permission_error", `No request is allowed by policy "p".`},
		{"handled", nethttp.Config{Rules: free}, 409, nil, 1, ", , false",
			"409 invalid_request_error", "409 invalid_request_error", "A request with this id was handled before."},
		{"handled, which is well", nethttp.Config{Rules: free}, 204, nil, 1, ", , ", "204", "204", ""},
		{"a body that is too long", nethttp.Config{Rules: of(limit, nil), MaxDelay: time.Second, BufferBody: 100}, 0, nil, 0, ", , ",
			"413 invalid_request_error", "413 request_too_large", "Request Entity Too Large"},
		{"exhausted", nethttp.Config{Rules: of(limit, nil)}, 0, nil, 2, "3600, , ",
			"429 tokens rate_limit_exceeded", "429 rate_limit_error", `The quota of policy "p" is exhausted.`},
		{"blocked", nethttp.Config{Blocks: block(false)}, 0, nil, 1, "5, , ",
			"429 requests rate_limit_exceeded", "429 rate_limit_error", "The client is blocked for a while because of its earlier requests."},
		{"blocked for a hidden time", nethttp.Config{Blocks: block(true)}, 0, nil, 1, ", , false",
			"429 requests rate_limit_exceeded", "429 rate_limit_error", "The client is blocked for a while because of its earlier requests."},
		{"Redis down", nethttp.Config{Gate: dead(t), Rules: of(limit, nil)}, 0, nil, 0, "1, , ",
			"503 server_error", "529 overloaded_error", ""},
		{"a full cap", nethttp.Config{}, 0, []string{"ann", "ann", "ann"}, 0, "soon, , ",
			"429 requests rate_limit_exceeded", "429 rate_limit_error", of2 + "."},
		{"a full queue", nethttp.Config{Slot: &nethttp.Slot{MaxWait: time.Nanosecond}}, 0, []string{"ann", "ann", "ann"}, 0, "soon, , ",
			"429 requests rate_limit_exceeded", "429 rate_limit_error", of2 + ", and the queue is full or the wait too long."},
		{"a full Global cap", nethttp.Config{}, 0, []string{"ann", "ann", "bob", "carl"}, 0, "soon, , ",
			"503 server_error", "529 overloaded_error", of3},
	} {
		for dialect, want := range map[nethttp.Dialect]string{
			llm.OpenAI{RetryWithin: time.Hour}: tt.openAI, llm.Anthropic{RetryWithin: time.Hour}: tt.anthropic,
		} {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				var seen *nethttp.Admission
				cfg := tt.cfg
				if cfg.Gate == nil {
					cfg.Gate = memory(t, aClock())
				}
				cfg.Dialect, cfg.Observe = dialect, observed(func(a *nethttp.Admission) { seen = a })
				change := func(r *http.Request) {
					if cfg.MaxDelay > 0 {
						r.Method, r.ContentLength = http.MethodPost, 20
						r.Body = http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(strings.Repeat("x", 20))), 10)
					}
				}
				var h http.Handler
				switch last := len(tt.crowd) - 1; {
				case last > 0:
					h, change = crowded(t, cfg, tt.crowd[:last]...), as(tt.crowd[last])
				case tt.handled > 0:
					once := core.Must(once.New(cfg.Gate, once.Config{Name: "ids", Window: time.Hour}))
					replay := nethttp.ReplayConfig{Once: once, ID: keyfunc.RemoteIP(), HandledStatus: tt.handled}
					h = core.Must(nethttp.NewReplay(guard(t, cfg), replay)).Handler(http.HandlerFunc(ok))
				default:
					h = guard(t, cfg).Handler(http.HandlerFunc(ok))
				}
				for range tt.before {
					get(h, change)
				}
				r := get(h, change)
				retry := retryHeaders(r.Header)
				if wait, err := strconv.Atoi(r.Header.Get("Retry-After")); tt.crowd != nil && err == nil && wait > 0 && wait <= 60 {
					retry = strings.Replace(retry, fmt.Sprint(wait), "soon", 1)
				}
				var e apiError
				fails := r.StatusCode != http.StatusNoContent
				if fails {
					e = readAPIError(t, r)
				}
				_, anthropic := dialect.(llm.Anthropic)
				got := strings.TrimSpace(fmt.Sprint(r.StatusCode, " ", e.Error.Type, " ", e.Error.Code))
				message := cmp.Or(tt.message, http.StatusText(r.StatusCode), "Overloaded")
				if got != want || retry != tt.retry || fails && (e.Type == "error") != anthropic ||
					fails && e.Error.Message != message {
					t.Errorf("%s (%s) %+v, want %s (%s) %s", got, retry, e, want, tt.retry, message)
				}
				if seen.Status() != r.StatusCode || seen.StatusText() == "" {
					t.Errorf("observed %d %s", seen.Status(), seen.StatusText())
				}
			})
		}
	}
}

// A budget that a running stream holds is not spent: clients wait for a moment and retry. One that is
// spent is final.
func TestRunningStreamMakesNoNever(t *testing.T) {
	const asked = `{"model":"m","stream":true,"max_tokens":1500,"messages":[]}`
	for _, c := range []struct{ path, held, spent string }{
		{chatPath, "tokens rate_limit_exceeded", "insufficient_quota insufficient_quota"},
		{"/v1/messages", "rate_limit_error ", "rate_limit_error "},
	} {
		t.Run(c.path, func(t *testing.T) {
			eachGate(t, func(t *testing.T, gate *core.Gate) {
				r := newRig(t, core.UnitMicroDollars, 2000, func(cfg *llm.Config) {
					cfg.Guard.Gate = gate
					cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: llm.Price{Input: 1_000_000, Output: 1_000_000}}}}
				})
				goOn := make(chan struct{})
				r.answer = events(1, func(w http.ResponseWriter, q *http.Request) {
					<-goOn
					if c.path == chatPath {
						chat(1, 1)(w, q)
						return
					}
					_, _ = io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":1,"output_tokens":1}}}`+"\n\n"+
						`data: {"type":"message_delta","usage":{"output_tokens":1}}`+"\n\n"+`data: {"type":"message_stop"}`+"\n\n")
				})
				running := r.post(c.path, asked)
				refused := func(retry, errors string) {
					t.Helper()
					response := r.post(c.path, asked)
					if got := retryHeaders(response.Header); response.StatusCode != 429 || got != retry {
						t.Errorf("%d, %s, want %s", response.StatusCode, got, retry)
					}
					if e := readAPIError(t, response); e.Error.Type+" "+e.Error.Code != errors ||
						e.Error.Message != `Running requests hold what the request needs of policy "budget".` {
						t.Errorf("%+v", e)
					}
				}
				refused("3, , ", c.held)
				close(goOn)
				read(t, running)
				<-r.reports
				if response := r.post(c.path, asked); response.StatusCode != 200 {
					t.Fatalf("status %d after the stream has ended: %s", response.StatusCode, read(t, response))
				} else {
					read(t, response)
				}
				<-r.reports
				r.spend(1990)
				response := r.post(c.path, asked)
				if e := readAPIError(t, response); response.Header.Get("X-Should-Retry") != "false" || e.Error.Type+" "+e.Error.Code != c.spent {
					t.Errorf("%s, %+v", retryHeaders(response.Header), e)
				}
			})
		})
	}
}

// A stream that outgrows its budget waits in vain for what it holds itself, but not for what others
// hold.
func TestStreamEndsByWhatOthersHold(t *testing.T) {
	for name, c := range map[string]struct {
		spent int64
		code  string
	}{
		"another stream holds the rest": {0, "rate_limit_exceeded"},
		"the rest is spent":             {50, "insufficient_quota"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, core.UnitOutputTokens, 60, func(cfg *llm.Config) {
				cfg.ChargeEvery, cfg.Overrun = 2, llm.OverrunEnd
			})
			goOn := make(chan struct{})
			r.answer = events(1, func(w http.ResponseWriter, q *http.Request) { <-goOn })
			var other *http.Response
			if c.spent == 0 {
				other = r.post(chatPath, streamed) // 50
			} else {
				r.spend(c.spent)
			}
			r.answer = events(30, nil)
			gatetest.Contains(t, read(t, r.post(chatPath, small)), `"code":"`+c.code+`"`, "the stream ended with")
			close(goOn)
			if other != nil {
				read(t, other)
			}
		})
	}
}

// A response states the limits in the dialect of its format, unless the Guard has another. The
// server's own limits are dropped and its other headers pass, beside those of outer handlers.
func TestHeadersOfTheLimits(t *testing.T) {
	const openAI, anthropic = "X: requests 8/9, tokens 950/1000", "Anthropic: requests 8/9, tokens 950/1000"
	const standard = `: "requests";q=9;w=31536000, "budget";q=1000;qu="tokens";w=31536000`
	for _, c := range []struct {
		name, path string
		dialect    nethttp.Dialect
		want       string
	}{
		{"chat", chatPath, nil, openAI},
		{"responses", responsesPath, nil, openAI},
		{"messages", messagesPath, nil, anthropic},
		{"OpenAI's for messages", messagesPath, llm.OpenAI{}, openAI},
		{"the standard headers", chatPath, nethttp.Draft11{}, standard},
		{"none", chatPath, nethttp.None{}, ": "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
				cfg.Guard.Dialect = c.dialect
				cfg.Guard.Rules = []nethttp.Rule{{Policy: policy("requests", core.UnitRequests, 9), Key: tenant}}
			})
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				h := w.Header()
				for _, name := range []string{
					"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Limit-Images",
					"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Limit",
				} {
					h.Set(name, "31337")
				}
				h.Set("Openai-Version", "1")
				h.Set("Cache-Control", "private")
				h.Add("Set-Cookie", "a=b")
				h.Add("Vary", "Accept")
				fmt.Fprint(w, `{"usage":{"prompt_tokens":1,"completion_tokens":1,"input_tokens":1,"output_tokens":1}}`)
			}
			meter := r.meter.Handler(proxyTo(t, r.upstream))
			r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				w.Header().Set("Vary", "Origin")
				w.Header().Set("Set-Cookie", "c=d")
				meter.ServeHTTP(w, q)
			}))
			response := r.post(c.path, `{"model":"m","max_tokens":50,"max_output_tokens":50}`)
			read(t, response)
			h := response.Header
			got := regexp.MustCompile(` [0-9dhms.]+s|Z| [0-9-]+T[0-9:]+`).ReplaceAllString(modelLimits(t, response), "")
			vendors := ""
			for _, vendor := range []string{"X", "Anthropic"} {
				if h.Get(vendor+"-Ratelimit-Limit-Tokens")+h.Get(vendor+"-Ratelimit-Tokens-Limit") != "" {
					vendors += vendor
				}
			}
			gatetest.Equal(t, vendors+": "+got+h.Get("Ratelimit-Policy"), c.want, "limits")
			kept := fmt.Sprint(h["Vary"], h["Set-Cookie"], h["Cache-Control"], h["Openai-Version"])
			gatetest.Equal(t, kept, "[Origin Accept] [c=d a=b] [private] [1]", "headers %v", h)
		})
	}
}

// A client is told in its own format whether to retry and when: by a budget, by a Gate that fails, and
// where the key of a budget is missing. The refusal of a server passes with the server's own advice.
func TestRefusalsOfEveryFormat(t *testing.T) {
	month := core.Calendar{Limit: 60, Every: core.PeriodMonth, In: time.UTC}
	perSecond := func(rate int64) core.Algorithm { return core.TokenBucket{Rate: rate, Per: time.Second, Burst: 60} }
	openAI := func(kind, code string) string {
		return `{"error":{"message":"*","type":"` + kind + `","param":null,"code":` + code + `}}`
	}
	anthropic := func(kind string) string { return `{"type":"error","error":{"type":"` + kind + `","message":"*"}}` }
	const quota, tokens, limited = `"insufficient_quota"`, `"rate_limit_exceeded"`, "rate_limit_error"
	for _, c := range []struct {
		name, path string
		limit      core.Algorithm // that lacks 2 tokens; nil for the other refusals
		status     int
		retry      string
		body       string // with * for the message
	}{
		{"month", chatPath, month, 429, ", , false", openAI("insufficient_quota", quota)},
		{"month of messages", messagesPath, month, 429, ", , false", anthropic(limited)},
		{"2 s", chatPath, perSecond(1), 429, "2, , ", openAI("tokens", tokens)},
		{"2 s of messages", messagesPath, perSecond(1), 429, "2, , ", anthropic(limited)},
		{"2 s of Gemini", "/v1beta/models/m:generateContent", perSecond(1), 429, "2, , ", `{"error":{"code":429,"message":"*","status":"RESOURCE_EXHAUSTED",` +
			`"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}`},
		{"200 ms of Gemini", "/v1beta/models/m:generateContent", perSecond(10), 429, "1, 200, ", `{"error":{"code":429,"message":"*",` +
			`"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0.2s"}]}}`},
		{"closed to Gemini", "/v1beta/models/m:generateContent", nil, 503, "1, , ", `{"error":{"code":503,"message":"*","status":"UNAVAILABLE",` +
			`"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1s"}]}}`},
		{"no key of Gemini", "/v1beta/models/m:generateContent", nil, 400, ", , ", `{"error":{"code":400,"message":"*","status":"INVALID_ARGUMENT"}}`},
		{"closed to Converse", "/model/m/converse", nil, 503, "1, , ", `{"message":"*"}`},
		{"2 s of Converse", "/model/m/converse", perSecond(1), 429, "2, , ", `{"message":"*"}`},
		{"2 s of Cohere", "/v2/chat", perSecond(1), 429, "2, , ", `{"message":"*"}`},
		{"2 s of Ollama", "/api/chat", perSecond(1), 429, "2, , ", `{"error":"*"}`},
		{"200 ms", responsesPath, perSecond(10), 429, "1, 200, ", openAI("tokens", tokens)},
		{"closed", chatPath, nil, 503, "1, , ", openAI("server_error", "null")},
		{"closed to messages", messagesPath, nil, llm.StatusOverloaded, "1, , ", anthropic("overloaded_error")},
		{"no key", messagesPath, nil, 400, ", , ", anthropic("invalid_request_error")},
		{"of the server", chatPath, nil, 429, "7, , true", "busy*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := core.NewManualClock(time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC))
			r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
				if c.limit == nil {
					return
				}
				cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
				cfg.Budgets[0].Policy = core.Must(core.NewPolicy(core.PolicyConfig{
					Name: "budget", Unit: core.UnitTokens, Hold: time.Hour, Algorithm: c.limit,
				}))
				cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) { return llm.Usage{Input: 2}, nil }
			})
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "7")
				w.Header().Set("X-Should-Retry", "true")
				w.WriteHeader(http.StatusTooManyRequests)
				fmt.Fprint(w, "busy")
			}
			q := r.request(c.path, `{"model":"m"}`)
			asked := 0
			switch {
			case c.limit != nil:
				r.spend(60)
			case strings.HasPrefix(c.name, "closed"):
				gatetest.NoError(t, r.gate.Close(t.Context()))
			case c.status == 400:
				q.Header.Del("X-Tenant")
			default:
				asked = 1
			}
			response := gatetest.Must(plainClient.Do(q))(t)
			body := strings.TrimSpace(read(t, response))
			begin, end, _ := strings.Cut(c.body, "*")
			if response.StatusCode != c.status || retryHeaders(response.Header) != c.retry ||
				!strings.HasPrefix(body, begin) || !strings.HasSuffix(body, end) {
				t.Errorf("%d (%s) %s, want %d (%s) %s", response.StatusCode, retryHeaders(response.Header), body, c.status, c.retry, c.body)
			}
			if kind := response.Header.Get("Content-Type"); asked == 0 && kind != "application/json" {
				t.Errorf("Content-Type %s", kind)
			}
			faults := map[int]string{429: "ThrottlingException", 503: "ServiceUnavailableException"}
			if kind := response.Header.Get("X-Amzn-Errortype"); strings.HasSuffix(c.path, "/converse") && kind != faults[c.status] {
				t.Errorf("the type is %q", kind)
			}
			gatetest.Equal(t, len(r.asked), asked, "requests of the upstream")
		})
	}
}
