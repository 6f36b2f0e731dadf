package llm_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A response states the limits in the dialect of its format, unless the Guard has another. The
// server's own limits are dropped and its other headers pass, beside those of outer handlers.
func TestHeadersOfTheLimits(t *testing.T) {
	const openAI = "X-Ratelimit-Limit-Requests X-Ratelimit-Limit-Tokens " +
		"X-Ratelimit-Remaining-Requests X-Ratelimit-Remaining-Tokens " +
		"X-Ratelimit-Reset-Requests X-Ratelimit-Reset-Tokens"
	const anthropic = "Anthropic-Ratelimit-Requests-Limit Anthropic-Ratelimit-Requests-Remaining " +
		"Anthropic-Ratelimit-Requests-Reset Anthropic-Ratelimit-Tokens-Limit " +
		"Anthropic-Ratelimit-Tokens-Remaining Anthropic-Ratelimit-Tokens-Reset"
	for _, c := range []struct {
		name, path string
		dialect    nethttp.Dialect
		want       string
	}{
		{"chat", chatPath, nil, openAI},
		{"responses", responsesPath, nil, openAI},
		{"messages", messagesPath, nil, anthropic},
		{"OpenAI's for messages", messagesPath, llm.OpenAI{}, openAI},
		{"the standard headers", chatPath, nethttp.Draft11{}, "Ratelimit Ratelimit-Policy"},
		{"none", chatPath, nethttp.None{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
				cfg.Guard.Dialect = c.dialect
				cfg.Guard.Rules = []nethttp.Rule{{Policy: policy("requests", core.UnitRequests, 9), Key: tenant}}
			})
			r.answer = func(w http.ResponseWriter, _ *http.Request) {
				h := w.Header()
				for _, name := range []string{
					"X-Ratelimit-Limit-Requests", "X-Ratelimit-Limit-Tokens",
					"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Limit-Images",
					"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Limit",
					"Anthropic-Ratelimit-Tokens-Remaining",
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
			if got := limitHeaders(t, h); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			kept := fmt.Sprint(h["Vary"], h["Set-Cookie"], h["Cache-Control"], h["Openai-Version"])
			if kept != "[Origin Accept] [c=d a=b] [private] [1]" {
				t.Errorf("headers %v", h)
			}
			if reset := h.Get("X-Ratelimit-Reset-Tokens"); reset != "" {
				if d, err := time.ParseDuration(reset); err != nil || d <= 0 {
					t.Errorf("reset %s", reset)
				}
			}
			if reset := h.Get("Anthropic-Ratelimit-Tokens-Reset"); reset != "" {
				if _, err := time.Parse(time.RFC3339, reset); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// limitHeaders returns the names of the headers that state limits, sorted. Each has one value, and
// not the server's.
func limitHeaders(t *testing.T, h http.Header) string {
	t.Helper()
	var names []string
	for name, values := range h {
		if strings.Contains(name, "Ratelimit") {
			names = append(names, name)
			if len(values) != 1 || values[0] == "31337" {
				t.Errorf("%s: %q", name, values)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// The refusal of a server passes on with the server's own advice on retries.
func TestRefusalOfTheServerPasses(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.Header().Set("X-Should-Retry", "true")
		http.Error(w, "busy", http.StatusTooManyRequests)
	}
	response := r.post(chatPath, streamed)
	if body := read(t, response); body != "busy\n" || response.Header.Get("Retry-After") != "7" ||
		response.Header.Get("X-Should-Retry") != "true" {
		t.Errorf("%s, %v", body, response.Header)
	}
	r.want(llm.OutcomeFailed, llm.Usage{}, 0)
}

// A client is told in its own format whether to retry and when.
func TestRefusalsOfBudgets(t *testing.T) {
	month := core.Calendar{Limit: 60, Every: core.PeriodMonth, In: time.UTC}
	// It leaves a debt of 2 s.
	spent := `{"usage":{"prompt_tokens":31,"completion_tokens":31,"input_tokens":31,"output_tokens":31}}`
	for _, c := range []struct {
		name, path string
		algorithm  core.Algorithm
		estimate   int64
		status     int
		header     map[string]string
		body       []string
	}{
		{"month", chatPath, month, 60, 429,
			map[string]string{"X-Should-Retry": "false", "Retry-After-Ms": ""},
			[]string{`"type":"insufficient_quota"`, `"code":"insufficient_quota"`}},
		{"month of messages", messagesPath, month, 60, 429,
			map[string]string{"X-Should-Retry": "false"}, []string{`"type":"rate_limit_error"`}},
		{"2 s", chatPath, core.TokenBucket{Rate: 1, Per: time.Second, Burst: 60}, 0, 429,
			map[string]string{"Retry-After": "2", "X-Should-Retry": "", "Retry-After-Ms": ""},
			[]string{`"type":"tokens"`, `"code":"rate_limit_exceeded"`}},
		{"2 s of messages", messagesPath, core.TokenBucket{Rate: 1, Per: time.Second, Burst: 60}, 0, 429,
			map[string]string{"Retry-After": "2", "X-Should-Retry": "", "Retry-After-Ms": ""},
			[]string{`"type":"rate_limit_error"`}},
		{"200 ms", responsesPath, core.TokenBucket{Rate: 10, Per: time.Second, Burst: 60}, 0, 429,
			map[string]string{"Retry-After": "1", "X-Should-Retry": "", "Retry-After-Ms": "200"},
			[]string{`"type":"tokens"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := core.NewManualClock(time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC))
			r := newRig(t, core.UnitTokens, 1, func(cfg *llm.Config) {
				cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
				cfg.Budgets[0].Policy = core.Must(core.NewPolicy(core.PolicyConfig{
					Name: "budget", Unit: core.UnitTokens, Hold: time.Hour, Algorithm: c.algorithm,
				}))
				cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) {
					return llm.Usage{Input: c.estimate}, nil
				}
			})
			r.answer = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, spent) }
			read(t, r.post(c.path, `{"model":"m"}`))
			r.want(llm.OutcomeReported, llm.Usage{Input: 31, Output: 31}, 62)
			response := r.post(c.path, `{"model":"m"}`)
			body := read(t, response)
			if response.StatusCode != c.status ||
				response.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%d, %v", response.StatusCode, response.Header)
			}
			for name, want := range c.header {
				if got := response.Header.Get(name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for _, want := range c.body {
				if !strings.Contains(body, want) {
					t.Errorf("%s, want %s", body, want)
				}
			}
			if len(r.asked) != 1 {
				t.Errorf("the upstream was asked %d times", len(r.asked))
			}
		})
	}
}

// While Redis fails and a budget is closed, the refusal is that of a server that has too much to
// do.
func TestRefusalOfAClosedGate(t *testing.T) {
	for path, want := range map[string]int{chatPath: 503, messagesPath: llm.StatusOverloaded} {
		r := newRig(t, core.UnitTokens, 1000, nil)
		if err := r.gate.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if response := r.post(path, `{"model":"m"}`); response.StatusCode != want ||
			len(r.asked) > 0 {
			t.Errorf("%s: %d %s", path, response.StatusCode, read(t, response))
		}
	}
}
