package llm_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/plans"
)

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
		if status, _ := r.ask(chatPath, body); status != want || r.usedOf(large) != 0 {
			t.Errorf("%s: %d, %d of large is used", body, status, r.usedOf(large))
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
		if status, _ := r.ask(chatPath, c.body); status != c.want {
			t.Errorf("%+v, %s: %d", c.plan, c.body, status)
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
		if status, _ := r.ask(chatPath, body); status != http.StatusForbidden {
			t.Errorf("%s: %d", body, status)
		}
	}
	r.unasked()
}
