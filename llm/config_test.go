package llm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// New reports every fault at once, each with the name of its field.
func TestNewReportsEveryFault(t *testing.T) {
	unheld := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "unheld", Unit: core.UnitTokens, Algorithm: core.PerMinute(1),
	}))
	cfg := llm.Config{
		Guard: nethttp.Config{
			Rules:    []nethttp.Rule{{Policy: policy("rule", core.UnitRequests, 1)}},
			MaxDelay: -1,
		},
		Budgets: []llm.Budget{
			{Policy: unheld},
			{Policy: policy("calls", core.UnitRequests, 1), Key: tenant},
			{Key: tenant, NoKey: 9},
			{Policy: policy("rule", core.UnitTokens, 1), Key: tenant},
			{Policy: policy("calls", core.UnitTokens, 1), Key: tenant},
		},
		Models: map[string]llm.Model{
			"m": {MaxOutput: -3, Tariff: llm.Tariff{
				Price: llm.Price{CacheRead: -2},
				Steps: []llm.Step{{From: 5}, {From: 5, Price: llm.Price{Output: 1}}, {},
					{Label: "speed", Price: free.Price}, {Label: "geo:us", From: 5, Price: free.Price}},
				Units:   map[string]int64{"web_search": -2},
				Factors: map[string]int64{"service_tier:flex": 0, "fast": 2000},
			}},
			"n": {MaxOutput: 1 << 40},
		},
		UnknownModel: 2, StatedCost: 2, Overrun: 2, Abort: 2,
		Routes:  []llm.Route{{Path: "x"}},
		MaxBody: -1, MaxBodies: -2, MaxOutput: -1, ChargeEvery: 1 << 62, DrainFor: -1, RetryWithin: -1,
	}
	err := gatetest.Err(llm.New(cfg))
	for _, want := range []string{
		"Guard: nethttp: Config.Gate is nil", "nethttp: Config.Rules[0].Key is nil",
		"Config.MaxDelay is",
		"Budgets[0].Key is nil", "Budgets[0].Policy has no Hold",
		"Budgets[1].Policy counts requests",
		"Budgets[2].Policy is missing", "Budgets[2].NoKey is 9",
		`Budgets[3].Policy is named "rule"`, `Budgets[4].Policy is named "calls"`,
		`Models["m"].Tariff.Price has -2`,
		`Tariff.Steps[0].Price is empty`, `Tariff.Steps[1].Price is {`, `Tariff.Steps[1].From is 5`,
		`Tariff.Steps[2].From is 0`, `Tariff.Steps[2].Price is empty`,
		`Tariff.Units["web_search"] is -2`, `Tariff.Factors["service_tier:flex"] is 0`,
		`Tariff.Factors has "fast"`, `Tariff.Steps[3].Label has "speed"`,
		`Tariff.Steps[4].Label is "geo:us": it needs a step From 0, and no factor`, `Models["n"].MaxOutput is`,
		`Models["m"].MaxOutput is -3`,
		`Routes[0].Path is "x"`, "Routes[0].Format is missing",
		"UnknownModel is 2", "StatedCost is 2", "Overrun is 2", "Abort is 2",
		"MaxBody is -1", "MaxBodies is -2", "MaxOutput is -1", "ChargeEvery is 4611686018427387904",
		"DrainFor is -1ns", "RetryWithin is -1ns",
	} {
		gatetest.Equal(t, strings.Count(fmt.Sprint(err), want), 1, "%q is not reported once", want)
	}
	if t.Failed() {
		t.Log(err)
	}
}

// Configurations that would meter nothing, or next to nothing, are faults too.
func TestNewRefuses(t *testing.T) {
	money, tokens := policy("money", core.UnitMicroDollars, 1000), policy("tokens", core.UnitTokens, 1000)
	var rules []nethttp.Rule
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		rules = append(rules, nethttp.Rule{Policy: policy(name, core.UnitRequests, 1), Key: tenant})
	}
	budget := func(p *core.Policy, models ...string) []llm.Budget {
		return []llm.Budget{{Policy: p, Key: tenant, Models: models}}
	}
	of := func(m llm.Model) map[string]llm.Model { return map[string]llm.Model{"m": m} }
	for want, cfg := range map[string]llm.Config{
		"Config.Budgets is empty": {},
		"at most 16":              {Guard: nethttp.Config{Rules: rules}, Budgets: budget(tokens)},
		"Budgets[0].Policy counts money, and Models and Prices": {Budgets: budget(money)},
		"Overrun is OverrunEnd, and ChargeEvery is 0":           {Budgets: budget(tokens), Overrun: llm.OverrunEnd},
		"Budgets[0].Policy is missing":                          {Budgets: budget(new(core.Policy))},
		"Slot.Semaphore is nil":                                 {Guard: nethttp.Config{Slot: &nethttp.Slot{Caps: []nethttp.Cap{{Key: tenant, Limit: 1}}}}, Budgets: budget(tokens)},
		`Models["m"] has no Tariff`:                             {Budgets: budget(money), Models: of(llm.Model{})},
		`Models["m"].Tariff.Price is`:                           {Budgets: budget(money), Models: of(llm.Model{Tariff: llm.Tariff{Price: llm.Price{CacheRead: 4}}})},
		`Models["m"].Tariff.Price is empty`:                     {Budgets: budget(money), Models: of(llm.Model{Tariff: llm.Tariff{Units: map[string]int64{"page": 1}}})},
		`Guard.Rules[0].Policy counts tokens`: {
			Guard: nethttp.Config{Rules: []nethttp.Rule{{Policy: tokens, Key: tenant}}}, Budgets: budget(money), Models: of(llm.Model{Tariff: free}),
		},
		"DrainFor is 1s":                       {Budgets: budget(money), Models: of(llm.Model{Tariff: free}), DrainFor: time.Second},
		`Config.Budgets[0].Models has "Large"`: {Budgets: budget(tokens, "large", "Large"), Models: twoModels()},
	} {
		cfg.Guard.Gate = gatetest.Memory(t, core.Config{})
		if m, err := llm.New(cfg); m != nil || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, cfg := range map[string]llm.Config{"Config.Guard.Gate is nil": {}, "Gate is nil": {Budgets: budget(tokens)}} {
		if m, err := llm.New(cfg); m != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestOutcomesAndFormatsHaveNames(t *testing.T) {
	gatetest.Names(t, llm.OutcomeReported, llm.OutcomeFailed, llm.OutcomeCut, llm.OutcomeUnreported, llm.OutcomeLeft, llm.Outcome(9))
	gatetest.Names(t, llm.FormatOpenAIChat, llm.FormatGemini, llm.Format{})
}

// The maps and slices of a Config may change after New.
func TestNewCopiesItsConfiguration(t *testing.T) {
	models := map[string]llm.Model{"m": {}}
	var budgets []llm.Budget
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Models, budgets = models, cfg.Budgets
	})
	delete(models, "m")
	budgets[0] = llm.Budget{Policy: policy("other", core.UnitTokens, 1), Key: keyfunc.RemoteIP()}
	r.answer = chat(7, 11)
	read(t, r.post("/v1/chat/completions", streamed))
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 18)
}

// Tools are told that budgets may have other limits only if there are plans.
func TestBudgetsVaryByPlansAlone(t *testing.T) {
	for name, plan := range map[string]func(*http.Request) (core.Plan, error){
		"none": nil, "plans": func(*http.Request) (core.Plan, error) { return nil, nil },
	} {
		gate, budget := newGate(), aMonth(core.UnitTokens, 1000)
		t.Cleanup(func() { _ = gate.Close(t.Context()) })
		m := core.Must(llm.New(llm.Config{Guard: nethttp.Config{Gate: gate, Plan: plan}, Budgets: []llm.Budget{budget}}))
		ask(m)
		gatetest.Equal(t, core.Inside(hub.Pass{}).Varies(budget.Policy), plan != nil, "%s: varies", name)
	}
}
