package llm_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/llm"
)

// Tools are told that budgets may have other limits only if there are plans.
func TestBudgetsVaryByPlansAlone(t *testing.T) {
	for name, plan := range map[string]func(*http.Request) (core.Plan, error){
		"none": nil, "plans": func(*http.Request) (core.Plan, error) { return nil, nil },
	} {
		gate, budget := newGate(), aMonth(core.UnitTokens, 1000)
		t.Cleanup(func() { _ = gate.Close(t.Context()) })
		m, err := llm.New(llm.Config{Guard: nethttp.Config{Gate: gate, Plan: plan}, Budgets: []llm.Budget{budget}})
		if err != nil {
			t.Fatal(err)
		}
		ask(m)
		if varies := hub.Varies.(func(*core.Policy) bool)(budget.Policy); varies != (plan != nil) {
			t.Errorf("%s: varies %v", name, varies)
		}
	}
}
