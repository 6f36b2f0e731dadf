package llm_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
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

// All other refusals have the status, the error and the advice on retries that clients know: they give
// up only if no retry helps and they would try.
func TestRefusals(t *testing.T) {
	limit := core.PolicyConfig{Name: "p", Algorithm: core.PerHour(1), Unit: core.UnitTokens, OnFailure: core.FailClosed}
	none := core.PolicyConfig{Name: "p", Algorithm: core.DenyAll{}}
	of := func(p core.PolicyConfig, fails error) []nethttp.Rule {
		return []nethttp.Rule{{Policy: policyOf(t, p), Key: func(r *http.Request) (string, error) { return r.RemoteAddr, fails }}}
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
