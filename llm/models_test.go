package llm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/plans"
)

// twoModels costs a micro-dollar a token, and ten times as much.
func twoModels() map[string]llm.Model {
	return map[string]llm.Model{
		"small": {Tariff: llm.Tariff{Price: llm.Price{Input: 1_000_000, Output: 1_000_000}}},
		"large": {Tariff: llm.Tariff{Price: llm.Price{Input: 10_000_000, Output: 10_000_000}}},
	}
}

// of returns the body of a request for a model, whose estimate is 3 tokens in and 5 out.
func of(model string, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":5,"max_output_tokens":5,"messages":[{"role":"user","content":"12345678"}]}`, model, stream)
}

// Every func of the configuration, and the handler, sees what the request asks for.
func TestRequestIsVisible(t *testing.T) {
	seen := make(map[string]llm.Request)
	see := func(where string, q *http.Request) {
		asked, ok := llm.RequestFrom(q.Context())
		if !ok {
			t.Errorf("%s does not see the request", where)
		}
		seen[where] = asked
	}
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Models = twoModels()
		key := func(where string) keyfunc.Func {
			return func(q *http.Request) (string, error) {
				see(where, q)
				return "acme", nil
			}
		}
		cfg.Guard.Plan = func(q *http.Request) (core.Plan, error) { see("Plan", q); return nil, nil }
		cfg.Guard.Blocks = []nethttp.BlockRule{{Policy: bans(t, core.Block{Strikes: 1, Within: time.Second, For: time.Second}), Key: key("Block")}}
		cfg.Guard.Rules = []nethttp.Rule{{
			Policy: policy("requests", core.UnitRequests, 9), Key: key("Rule"),
			Cost: func(q *http.Request) int64 { see("Cost", q); return 1 },
		}}
		cfg.Guard.Slot = &nethttp.Slot{
			Semaphore: core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "running"})),
			Caps:      []nethttp.Cap{{Key: key("Cap"), Limit: 1}},
		}
		cfg.Budgets[0].Key = key("Budget")
		cfg.Budgets[0].Skip = func(q *http.Request) bool { see("Skip", q); return false }
	})
	r.handle(func(w http.ResponseWriter, q *http.Request) {
		see("handler", q)
		chat(3, 2)(w, q)
	})
	read(t, r.post(chatPath, of("large", true)))
	report := <-r.reports
	want := llm.Request{
		Model: "large", Stream: true, MaxOutput: 5, Choices: 1, PromptBytes: report.Request.PromptBytes,
		Format: llm.FormatOpenAIChat, Estimate: report.Estimate,
	}
	for _, where := range []string{"Plan", "Block", "Rule", "Cost", "Cap", "Budget", "Skip", "handler"} {
		if seen[where] != want {
			t.Errorf("%s sees %+v, want %+v", where, seen[where], want)
		}
	}
	if report.Request != want {
		t.Errorf("the report has %+v", report.Request)
	}
	if _, ok := llm.RequestFrom(t.Context()); ok {
		t.Error("a request was seen where there is none")
	}
}

// Rules that skip other models or whole answers count nothing of them.
func TestLimitsOfSomeModels(t *testing.T) {
	large, streams, each := policy("large", core.UnitRequests, 9), policy("streams", core.UnitRequests, 9), policy("each", core.UnitRequests, 9)
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Models, cfg.UnknownModel = twoModels(), llm.UnknownModelDearest
		cfg.Guard.Rules = []nethttp.Rule{
			{Policy: large, Key: tenant, Skip: llm.UnlessModel("large")},
			{Policy: streams, Key: tenant, Skip: llm.UnlessStream},
			{Policy: each, Key: llm.ModelKey, NoKey: nethttp.NoKeySkip},
		}
		cfg.Budgets[0].Models = []string{"large"}
		cfg.Budgets[0].Skip = func(q *http.Request) bool { return q.Header.Get("X-Free") != "" }
	})
	r.handle(chat(3, 5))
	used := func(p *core.Policy, key string) int64 {
		d, err := r.gate.Peek(t.Context(), core.Charge{Policy: p, Key: core.Must(core.NewKey(key)), Cost: core.NoCost})
		if err != nil {
			t.Fatal(err)
		}
		return d.At(0).Used
	}
	acme := core.Must(tenant(r.request(chatPath, "")))
	check := func(what string, want ...int64) {
		t.Helper()
		got := []int64{
			used(large, acme), used(streams, acme), used(each, "small"), used(each, "large"), used(each, "*"), used(r.budget, acme),
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v are used, want %v", what, got, want)
		}
	}
	for _, step := range []struct {
		model  string
		stream bool
		header string
		want   []int64
	}{
		{"small", false, "", []int64{0, 0, 1, 0, 0, 0}},
		{"small", true, "", []int64{0, 1, 2, 0, 0, 0}},
		{"large", true, "", []int64{1, 2, 2, 1, 0, 8}},
		{"large", true, "yes", []int64{2, 3, 2, 2, 0, 8}},
		{"new", true, "", []int64{3, 4, 2, 2, 1, 16}}, // may be any model
		{"newer", true, "", []int64{4, 5, 2, 2, 2, 24}},
	} {
		read(t, r.post(chatPath, of(step.model, step.stream), "X-Free", step.header))
		<-r.reports
		check(fmt.Sprint(step.model, step.stream, step.header), step.want...)
	}
	charges, err := r.meter.Guard(llm.FormatOpenAIChat).Charges(r.request(chatPath, ""))
	if err != nil || len(charges) != 3 { // an operator's request is for no model, so all that have a key count
		t.Errorf("%d charges, %v", len(charges), err)
	}
	usage := httptest.NewRecorder()
	r.meter.Guard(llm.FormatOpenAIChat).Usage().ServeHTTP(usage, httptest.NewRequest(http.MethodGet, "/usage", nil))
	if usage.Code != 400 { // without a tenant
		t.Errorf("status %d", usage.Code)
	}
}

// A plan has limits and caps of single models.
func TestPlanNamesLimitsByModel(t *testing.T) {
	set := core.Must(plans.ParseSet([]byte(`
default: free
plans:
  free:
    limits:
      requests: {limit: 3, calendar: year, in: UTC}
      requests/large: {limit: 1, calendar: year, in: UTC}
      budget/large: {limit: 30, calendar: year, in: UTC}
    caps: {running/large: 1}
`)))
	book := core.Must(plans.New(plans.Config{Set: set, Policies: []string{"requests", "budget"}, Models: []string{"large"}}))
	defer book.Close()
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Models = twoModels()
		cfg.Guard.Plan = book.Plan(tenant)
		cfg.Guard.Rules = []nethttp.Rule{{
			Policy: policy("requests", core.UnitRequests, 9), Key: keyfunc.Must(keyfunc.Join(tenant, llm.ModelKey)),
		}}
		cfg.Guard.Slot = &nethttp.Slot{
			Semaphore: core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "running"})),
			Caps:      []nethttp.Cap{{Name: "running", Key: tenant, Limit: 7}},
		}
	})
	var limits []string
	r.handle(func(w http.ResponseWriter, q *http.Request) {
		a := nethttp.AdmissionFromContext(q.Context())
		limit, _, _ := a.Plan().Cap("running")
		limits = append(limits, fmt.Sprint(a.Decision().At(0).Limit, a.Decision().At(1).Limit, limit))
		chat(3, 5)(w, q)
	})
	for _, step := range []struct {
		model  string
		status int
	}{{"large", 200}, {"large", 429}, {"small", 200}, {"small", 200}, {"small", 200}, {"small", 429}} {
		if status, _ := r.ask(chatPath, of(step.model, true)); status != step.status {
			t.Errorf("%s: status %d", step.model, status)
		}
	}
	if got := strings.Join(limits, ", "); got != "1 30 1, 3 1000 0, 3 1000 0, 3 1000 0" {
		t.Errorf("the limits were %s", got)
	}
}

// A cap may be for each model, and for streams only.
func TestCapsOfSomeRequests(t *testing.T) {
	r := newRig(t, core.UnitTokens, 100_000, func(cfg *llm.Config) {
		cfg.Models = twoModels()
		cfg.Guard.Slot = &nethttp.Slot{
			Semaphore: core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "running"})),
			Caps: []nethttp.Cap{
				{Name: "all", Key: tenant, Limit: 9}, {Name: "each-model", Key: llm.ModelKey, Limit: 1},
			},
			Skip: llm.UnlessStream,
		}
	})
	goOn := make(chan struct{})
	r.answer = events(1, func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("X-Waits") != "" {
			<-goOn
		}
		chat(3, 5)(w, q)
	})
	running := r.post(chatPath, of("large", true), "X-Waits", "yes")
	for _, step := range []struct {
		model  string
		stream bool
		status int
	}{{"large", true, 429}, {"small", true, 200}, {"large", false, 200}} {
		if status, body := r.ask(chatPath, of(step.model, step.stream)); status != step.status ||
			step.status == 429 && !strings.Contains(body, `\"each-model\"`) {
			t.Errorf("%+v: %d %s", step, status, body)
		}
	}
	close(goOn)
	read(t, running)
}
