package llm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
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
	if kind := r.Header.Get("Content-Type"); kind != "application/json" {
		t.Errorf("Content-Type %q", kind)
	}
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

// A denial that this process remembers has the error of the one that Redis decided.
func TestOpenAIErrorOfCachedDenial(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		h := guard(t, nethttp.Config{Gate: gate, Dialect: llm.OpenAI{}, Rules: []nethttp.Rule{
			spends(t, 60, core.PolicyConfig{Name: "tpm", Algorithm: core.PerMinute(100), Unit: core.UnitTokens}),
			spends(t, 60, core.PolicyConfig{Name: "budget", Algorithm: core.Calendar{Limit: 60, Every: core.PeriodYear, In: time.UTC}, Unit: core.UnitMicroDollars}),
		}}).Handler(http.HandlerFunc(ok))
		get(h)
		for range 3 {
			r := get(h)
			if e := readAPIError(t, r); e.Error.Code != "insufficient_quota" || r.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("%+v, %v", e, r.Header)
			}
		}
	})
}

func TestAPIErrorByStatus(t *testing.T) {
	limit := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1), Unit: core.UnitTokens}
	of := func(key keyfunc.Func) []nethttp.Rule {
		return []nethttp.Rule{{Policy: policyOf(t, limit), Key: key}}
	}
	fails := func(err error) []nethttp.Rule {
		return of(func(*http.Request) (string, error) { return "", err })
	}
	limit.OnFailure = core.FailClosed
	for _, tt := range []struct {
		name      string
		cfg       nethttp.Config
		replayed  bool
		before    int
		openAI    int
		errorType string
		anthropic int
		kind      string
	}{
		{"no key", nethttp.Config{Gate: memory(t, aClock()), Rules: fails(keyfunc.ErrNoKey)}, false, 0,
			400, "invalid_request_error", 400, "invalid_request_error"},
		{"denied", nethttp.Config{Gate: memory(t, aClock()), Rules: of(keyfunc.RemoteIP()), Deny: func(*http.Request) bool { return true }}, false, 0,
			403, "invalid_request_error", 403, "permission_error"},
		{"handled", nethttp.Config{Gate: memory(t, aClock()), Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: core.Unlimited{}})}, true, 1,
			409, "invalid_request_error", 409, "invalid_request_error"},
		{"a body that is too long", nethttp.Config{Gate: memory(t, aClock()), Rules: of(keyfunc.RemoteIP()), MaxDelay: time.Second, BufferBody: 100}, false, 0,
			413, "invalid_request_error", 413, "request_too_large"},
		{"exhausted", nethttp.Config{Gate: memory(t, aClock()), Rules: of(keyfunc.RemoteIP())}, false, 2,
			429, "tokens", 429, "rate_limit_error"},
		{"a failing key", nethttp.Config{Gate: memory(t, aClock()), Rules: fails(io.ErrUnexpectedEOF)}, false, 0,
			500, "server_error", 500, "api_error"},
		{"Redis down", nethttp.Config{Gate: dead(t), Rules: of(keyfunc.RemoteIP())}, false, 0,
			503, "server_error", 529, "overloaded_error"},
	} {
		for dialect, want := range map[nethttp.Dialect]struct {
			status    int
			outer, in string
		}{
			llm.OpenAI{RetryWithin: time.Hour}: {tt.openAI, "", tt.errorType}, llm.Anthropic{}: {tt.anthropic, "error", tt.kind},
		} {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				cfg, seen := tt.cfg, 0
				cfg.Dialect = dialect
				cfg.Observe = observed(func(a *nethttp.Admission) { seen = a.Status() })
				var admitter nethttp.Admitter = guard(t, cfg)
				if tt.replayed {
					admitter = replay(t, guard(t, cfg), nethttp.ReplayConfig{
						Once: newOnce(t, memory(t, aClock())), ID: keyfunc.Must(keyfunc.Static("id")),
					})
				}
				h := admitter.Handler(http.HandlerFunc(ok))
				post := func(r *http.Request) {
					if tt.openAI == http.StatusRequestEntityTooLarge {
						r.Method, r.ContentLength = http.MethodPost, 20
						r.Body = http.MaxBytesReader(nil, io.NopCloser(strings.NewReader(strings.Repeat("x", 20))), 10)
					}
				}
				for range tt.before {
					get(h, post)
				}
				r := get(h, post)
				e := readAPIError(t, r)
				if r.StatusCode != want.status || seen != want.status || e.Type != want.outer || e.Error.Type != want.in {
					t.Errorf("%d, observed %d, %+v", r.StatusCode, seen, e)
				}
				if wait := r.Header.Get("Retry-After"); tt.openAI == 503 && wait != "1" {
					t.Errorf("Retry-After %q", wait)
				}
			})
		}
	}
}

// An overload has a message and a status text although its status is not registered.
func TestStatusOverloadedHasWords(t *testing.T) {
	text := ""
	h := guard(t, nethttp.Config{
		Gate: dead(t), Dialect: llm.Anthropic{},
		Rules:   rules(t, core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1), OnFailure: core.FailClosed}),
		Observe: observed(func(a *nethttp.Admission) { text = a.StatusText() }),
	}).Handler(http.HandlerFunc(ok))
	const want = `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}` + "\n"
	if got := body(t, get(h)); got != want || text != "Overloaded" {
		t.Errorf("%q, %s", text, got)
	}
}

// A refusal tells why in the message.
func TestOpenAIErrorTellsWhy(t *testing.T) {
	for _, c := range []struct {
		name   string
		key    keyfunc.Func
		status int
		body   string
	}{
		{"denied", keyfunc.RemoteIP(), 403,
			`{"error":{"message":"No request is allowed by policy \"p\".","type":"invalid_request_error","param":null,"code":"not_in_plan"}}`},
		{"no key", func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey }, 400,
			`{"error":{"message":"The request lacks the key of its rate limit.","type":"invalid_request_error","param":null,"code":null}}`},
		{"a failing key", func(*http.Request) (string, error) { return "", io.ErrUnexpectedEOF }, 500,
			`{"error":{"message":"Internal Server Error","type":"server_error","param":null,"code":null}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			none := policyOf(t, core.PolicyConfig{Name: "p", Algorithm: core.DenyAll{}})
			r := get(guard(t, nethttp.Config{
				Gate: memory(t, aClock()), Dialect: llm.OpenAI{}, Rules: []nethttp.Rule{{Policy: none, Key: c.key}},
			}).Handler(http.HandlerFunc(ok)))
			if got := body(t, r); r.StatusCode != c.status || got != c.body+"\n" {
				t.Errorf("%d, %s", r.StatusCode, got)
			}
		})
	}
}

// A full cap of the caller is a limit on its requests. A Global one is an overload.
func TestAPIErrorOfFullCap(t *testing.T) {
	for _, tt := range []struct {
		dialect nethttp.Dialect
		user    string
		status  int
		body    string
	}{
		{llm.OpenAI{}, "ann", 429, `{"error":{"message":"All 2 concurrent requests of policy \"streams\" are in use.",` +
			`"type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{llm.OpenAI{}, "carl", 503, `{"error":{"message":"All 3 concurrent requests of policy \"tenant\" are in use.",` +
			`"type":"server_error","param":null,"code":null}}`},
		{llm.Anthropic{}, "ann", 429, `{"type":"error","error":{"type":"rate_limit_error",` +
			`"message":"All 2 concurrent requests of policy \"streams\" are in use."}}`},
		{llm.Anthropic{}, "carl", 529, `{"type":"error","error":{"type":"overloaded_error",` +
			`"message":"All 3 concurrent requests of policy \"tenant\" are in use."}}`},
	} {
		t.Run(fmt.Sprintf("%T, %s", tt.dialect, tt.user), func(t *testing.T) {
			users := []string{"ann", "ann"}
			if tt.user != "ann" {
				users = append(users, "bob")
			}
			r := get(crowded(t, nethttp.Config{Dialect: tt.dialect}, users...), as(tt.user))
			if got := body(t, r); r.StatusCode != tt.status || got != tt.body+"\n" || r.Header.Get("Retry-After") == "" {
				t.Errorf("%d, %v, %s", r.StatusCode, r.Header, got)
			}
		})
	}
}
