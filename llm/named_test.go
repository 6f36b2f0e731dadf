package llm_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/plans"
)

// A request may name models in four places. Each of them must be known, and the dearest is held.
func TestEveryNamedModelIsChecked(t *testing.T) {
	const prompt = `"max_tokens":5,"messages":[{"role":"user","content":"12345678"}]`
	for _, c := range []struct {
		name, path, body string
		models           []string // nil: refused
		held             int64    // micro-dollars; a token of large costs 10, of small 1
	}{
		{"body", chatPath, `{"model":"small",%s}`, []string{"small"}, 12},
		{"engine", "/v1/engines/large/chat/completions", `{%s}`, []string{"large"}, 120},
		{"engine and body", "/engines/large/chat/completions", `{"model":"small",%s}`, []string{"large", "small"}, 120},
		{"unknown engine", "/engines/other/chat/completions", `{"model":"small",%s}`, nil, 0},
		{"engine, unknown body", "/engines/small/chat/completions", `{"model":"other",%s}`, nil, 0},
		{"Docker's engine", "/engines/llama.cpp/v1/chat/completions", `{"model":"small",%s}`, []string{"small"}, 12},
		{"deployment", "/openai/deployments/large/chat/completions", `{"model":"small",%s}`, []string{"large", "small"}, 120},
		{"deep deployment", "/openai/deployments/a/large/chat/completions", `{"model":"small",%s}`, []string{"a/large", "small"}, 290},
		{"unknown deep deployment", "/openai/deployments/b/large/chat/completions", `{"model":"small",%s}`, nil, 0},
		{"models", chatPath, `{"model":"small","models":["small","large"],%s}`, []string{"small", "large"}, 120},
		{"models alone", chatPath, `{"models":["small","large"],%s}`, []string{"small", "large"}, 120},
		{"unknown in models", chatPath, `{"model":"small","models":["other"],%s}`, nil, 0},
		{"fallbacks", "/v1/messages", `{"model":"small","fallbacks":[{"model":"large"}],%s}`, []string{"small", "large"}, 120},
		{"cap of a fallback", "/v1/messages", `{"model":"small","fallbacks":[{"model":"small","max_tokens":50}],%s}`, []string{"small"}, 57},
		{"names as fallbacks", chatPath, `{"model":"small","fallbacks":["large"],%s}`, []string{"small", "large"}, 120},
		{"unknown in fallbacks", chatPath, `{"model":"small","fallbacks":[{"model":"other"}],%s}`, nil, 0},
		{"fallback of another shape", chatPath, `{"model":"small","fallbacks":[{"small":["other"]}],%s}`, nil, 0},
		{"stored prompt", "/responses", `{"prompt":{"id":"pmpt_1"},"max_output_tokens":5,"input":"12345678"%.0s}`, []string{"prompt:pmpt_1"}, 11},
		{"unknown stored prompt", "/responses", `{"prompt":{"id":"pmpt_2"},%s}`, nil, 0},
		{"stored prompt and model", "/responses", `{"model":"small","prompt":{"id":"pmpt_2"},"max_output_tokens":5,"input":"12345678"%.0s}`, []string{"small"}, 11},
		{"no other", chatPath, `{"model":"small","models":null,"fallbacks":[],%s}`, []string{"small"}, 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			var named []string
			var held int64
			r := newRig(t, core.UnitMicroDollars, 10_000, func(cfg *llm.Config) {
				cfg.Models = twoModels()
				cfg.Models["prompt:pmpt_1"] = cfg.Models["small"]
				cfg.Models["a/large"] = llm.Model{Tariff: llm.Tariff{Price: llm.Price{Input: 20_000_000, Output: 30_000_000}}}
			})
			r.handle(func(w http.ResponseWriter, q *http.Request) {
				named, held = llm.ModelsFrom(q.Context()), r.used()
				ok(w, q)
			})
			response := r.post(c.path, fmt.Sprintf(c.body, prompt))
			read(t, response)
			if !slices.Equal(named, c.models) || (c.models == nil) != (response.StatusCode/100 == 4) {
				t.Errorf("%d: it names %q, want %q", response.StatusCode, named, c.models)
			}
			if held != c.held {
				t.Errorf("%d micro-dollars are held, want %d", held, c.held)
			}
		})
	}
}

// A response that does not say which of several models has answered costs as much as the dearest. One
// that does costs as much as that.
func TestOneOfSeveralModelsIsPaid(t *testing.T) {
	for served, want := range map[string]int64{"": 100, "small": 10, "small-2026-11-01": 10, "large": 100, "other": 100} {
		r := newRig(t, core.UnitMicroDollars, 10_000, func(cfg *llm.Config) { cfg.Models = twoModels() })
		r.answer = func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"model":%q,"usage":{"prompt_tokens":8,"completion_tokens":2}}`, served)
		}
		read(t, r.post(chatPath, `{"model":"small","models":["large"],"max_tokens":5}`))
		if report := r.want(llm.OutcomeReported, llm.Usage{Input: 8, Output: 2}, want); report.Cost != want {
			t.Errorf("%q: %+v", served, report)
		}
	}
}

// Limits of a model count the requests that may be answered by it.
func TestLimitsOfAModelCountItsFallbacks(t *testing.T) {
	large := policy("large", core.UnitTokens, 1000)
	denied := core.Must(core.NewPolicy(core.PolicyConfig{Name: "rule", Algorithm: core.DenyAll{}}))
	for body, want := range map[string]int{
		`{"model":"small","max_tokens":5}`:                       http.StatusOK,
		`{"model":"small","models":["tiny"],"max_tokens":5}`:     http.StatusOK,
		`{"model":"small","fallbacks":["large"],"max_tokens":5}`: http.StatusForbidden,
	} {
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Models = twoModels()
			cfg.Models["tiny"] = cfg.Models["small"]
			cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: large, Key: tenant, Models: []string{"large"}})
			cfg.Guard.Rules = []nethttp.Rule{{Policy: denied, Key: tenant, Skip: llm.UnlessModel("large")}}
		})
		r.answer = ok
		response := r.post(chatPath, body)
		if read(t, response); response.StatusCode != want || r.usedOf(large) != 0 {
			t.Errorf("%s: %d, %d of large is used", body, response.StatusCode, r.usedOf(large))
		}
	}
}

// A plan's limits of a model hold for a request that may be answered by it.
func TestPlanOfAModelCountsItsFallbacks(t *testing.T) {
	for _, c := range []struct {
		plan plans.Plan
		body string
		want int
	}{
		{plans.Plan{Limits: map[string]core.Algorithm{"rule/large": core.DenyAll{}}}, `{"model":"small"}`, http.StatusOK},
		{plans.Plan{Limits: map[string]core.Algorithm{"rule/large": core.DenyAll{}}}, `{"model":"small","models":["large"]}`, http.StatusForbidden},
		{plans.Plan{Limits: map[string]core.Algorithm{"rule/small": core.Unlimited{}, "rule/large": core.DenyAll{}}},
			`{"model":"small","models":["large"]}`, http.StatusForbidden},
		{plans.Plan{Limits: map[string]core.Algorithm{"rule": core.DenyAll{}, "rule/large": core.Unlimited{}}},
			`{"model":"small","models":["large"]}`, http.StatusOK},
	} {
		r := newRig(t, core.UnitTokens, 100_000, func(cfg *llm.Config) {
			cfg.Models = twoModels()
			cfg.Guard.Plan = func(*http.Request) (core.Plan, error) { return c.plan, nil }
			cfg.Guard.Rules = []nethttp.Rule{{Policy: policy("rule", core.UnitRequests, 10), Key: tenant}}
		})
		r.answer = ok
		response := r.post(chatPath, c.body)
		if read(t, response); response.StatusCode != c.want {
			t.Errorf("%+v, %s: %d", c.plan, c.body, response.StatusCode)
		}
	}
}

// Nobody downgrades a request that names several models: the server would still know the others.
func TestSeveralModelsAreNotDowngraded(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Models, cfg.Downgrade = twoModels(), toSmall
		cfg.Guard.Rules = []nethttp.Rule{{
			Policy: core.Must(core.NewPolicy(core.PolicyConfig{Name: "rule", Algorithm: core.DenyAll{}})),
			Key:    tenant, Skip: llm.UnlessModel("large"),
		}}
	})
	for _, body := range []string{
		`{"model":"large","models":["large","small"]}`, `{"models":["large"]}`, `{"model":"large","fallbacks":["large"]}`,
	} {
		response := r.post(chatPath, body)
		if read(t, response); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", body, response.StatusCode)
		}
	}
	r.unasked()
}

// An entry in Models for the model of the request replaces what a price file knows of the name in
// the response, also behind the name of a deployment.
func TestOwnPriceBeatsAFile(t *testing.T) {
	file := `{
		"gpt-4o":{"litellm_provider":"openai","input_cost_per_token":1.25e-06,"output_cost_per_token":1e-05},
		"gpt-4o-2024-11-20":{"litellm_provider":"openai","input_cost_per_token":1.25e-06,"output_cost_per_token":1e-05}}`
	path := filepath.Join(t.TempDir(), "prices.json")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	for at, body := range map[string]string{
		chatPath: `{"model":"gpt-4o"}`,
		"/openai/deployments/gpt-4o/chat/completions": `{}`,
		"/openai/deployments/ours/chat/completions":   `{}`,
	} {
		r := newRig(t, core.UnitMicroDollars, 10_000_000, func(cfg *llm.Config) {
			cfg.Models = map[string]llm.Model{"gpt-4o": {Tariff: llm.Tariff{Price: each}}, "ours": {Tariff: llm.Tariff{Price: each}}}
			cfg.Prices = load(t, llm.PricesConfig{Paths: []string{path}})
		})
		r.answer = func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"model":"gpt-4o-2024-11-20","usage":{"prompt_tokens":1000000,"completion_tokens":1}}`)
		}
		read(t, r.post(at, body))
		if report := r.want(llm.OutcomeReported, llm.Usage{Input: 1_000_000, Output: 1}, 1_000_001); len(report.Unknown) > 0 {
			t.Errorf("%s: %q", at, report.Unknown)
		}
	}
}

// An estimate has the tariff that Config.Tariff returns for the model of the request.
func TestNegotiatedTariffIsHeld(t *testing.T) {
	var held int64
	r := newRig(t, core.UnitMicroDollars, 10_000, func(cfg *llm.Config) {
		cfg.Models = twoModels()
		cfg.Tariff = func(model string, _ map[string]string, _ time.Time) (llm.Tariff, bool) {
			return llm.Tariff{Price: llm.Price{Input: 2_000_000, Output: 2_000_000}}, model == "large"
		}
	})
	r.handle(func(w http.ResponseWriter, q *http.Request) {
		held = r.used()
		ok(w, q)
	})
	read(t, r.post(chatPath, of("large", false)))
	if held != 24 {
		t.Errorf("%d micro-dollars are held, want 24", held)
	}
}
