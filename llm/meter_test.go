package llm_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

var tenant = keyfunc.Must(keyfunc.Header("X-Tenant"))

// rig is a Meter in front of an upstream that a test chooses.
type rig struct {
	*testing.T
	gate     *core.Gate
	meter    *llm.Meter
	budget   *core.Policy
	url      string
	close    func() // closes the gateway
	upstream string
	reports  chan llm.ResponseEvent
	answer   func(w http.ResponseWriter, r *http.Request)

	mu    sync.Mutex
	asked []string // bodies that the upstream has read
}

func newRig(t *testing.T, unit core.Unit, limit int64, change func(*llm.Config)) *rig {
	t.Helper()
	r := &rig{T: t, reports: make(chan llm.ResponseEvent, 100)}
	memory := core.Must(core.NewMemory(core.Config{}))
	r.gate = memory
	r.budget = policy("budget", unit, limit)
	cfg := llm.Config{
		Guard:   nethttp.Config{Gate: r.gate},
		Budgets: []llm.Budget{{Policy: r.budget, Key: tenant}},
		Observe: func(_ context.Context, e core.Event) { r.reports <- *e.(*llm.ResponseEvent) },
	}
	r.Cleanup(func() { // after the servers are closed
		for _, gate := range []*core.Gate{memory, r.gate} {
			gatetest.Worked(t, gate.Close(context.Background()))
		}
	})
	if change != nil {
		change(&cfg)
	}
	r.gate, r.budget = cfg.Guard.Gate, cfg.Budgets[0].Policy
	var err error
	if r.meter, err = llm.New(cfg); err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		r.asked = append(r.asked, string(body))
		r.mu.Unlock()
		r.answer(w, q)
	}))
	r.upstream = upstream.URL
	r.serve(r.meter.Handler(proxyTo(t, r.upstream)))
	t.Cleanup(upstream.Close) // before the gateway, whose requests it ends
	return r
}

func proxyTo(t *testing.T, server string) http.Handler {
	t.Helper()
	at := gatetest.Must(url.Parse(server))(t)
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	return proxy
}

// serve makes h the gateway.
func (r *rig) serve(h http.Handler) {
	gateway := httptest.NewUnstartedServer(h)
	gateway.Config.ErrorLog = log.New(io.Discard, "", 0)
	gateway.Start()
	r.url, r.close = gateway.URL, sync.OnceFunc(gateway.Close)
	r.Cleanup(r.close)
}

// handle makes h the handler behind the Meter.
func (r *rig) handle(h http.HandlerFunc) { r.serve(r.meter.Handler(h)) }

// request returns a POST of acme, with pairs of a header and its value.
func (r *rig) request(path, body string, header ...string) *http.Request {
	r.Helper()
	q := gatetest.Must(http.NewRequestWithContext(r.Context(), http.MethodPost, r.url+path, strings.NewReader(body)))(r)
	q.Header.Set("X-Tenant", "acme")
	for i := 0; i < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	return q
}

func (r *rig) post(path, body string, header ...string) *http.Response {
	r.Helper()
	return gatetest.Must(plainClient.Do(r.request(path, body, header...)))(r)
}

// ask sends a request and reads the response.
func (r *rig) ask(path, body string, header ...string) (status int, text string) {
	r.Helper()
	response := r.post(path, body, header...)
	return response.StatusCode, read(r.T, response)
}

// spend spends units of the budget of acme.
func (r *rig) spend(units int64) {
	r.Helper()
	charge := r.charge()
	charge.Cost = units
	gatetest.Must(r.gate.Decide(r.Context(), charge))(r)
}

// plainClient asks for no encoding and follows no redirect.
var plainClient = &http.Client{Transport: &http.Transport{DisableCompression: true}}

// want checks what the next request that ended has used, and what the budget counts.
func (r *rig) want(outcome llm.Outcome, usage llm.Usage, used int64) llm.ResponseEvent {
	r.Helper()
	report := <-r.reports
	if report.Outcome != outcome || report.Usage != usage {
		r.Errorf("%v with %+v, want %v with %+v", report.Outcome, report.Usage, outcome, usage)
	}
	if n := r.used(); n != used {
		r.Errorf("%d units are used, want %d", n, used)
	}
	return report
}

// unasked checks that the upstream was not asked and that nothing is spent.
func (r *rig) unasked() {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.asked) > 0 || len(r.reports) > 0 {
		r.Errorf("the upstream was asked %q, %d reports", r.asked, len(r.reports))
	}
	gatetest.Equal(r, r.used(), 0, "units are used")
}

// used returns what acme has used of the budget.
func (r *rig) used() int64 {
	r.Helper()
	return r.usedOf(r.budget)
}

func (r *rig) usedOf(p *core.Policy) int64 {
	r.Helper()
	for _, result := range r.peek() {
		if result.Policy == p {
			return result.Used
		}
	}
	r.Fatalf("%s is no rule", p.Name())
	return 0
}

// peek returns the limits of acme.
func (r *rig) peek() []core.Result {
	r.Helper()
	q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	q.Header.Set("X-Tenant", "acme")
	q.Header.Set("X-User", "ann")
	charges := gatetest.Must(r.meter.Guard(llm.FormatOpenAIChat).Charges(q))(r)
	d := gatetest.Must(r.gate.Peek(r.Context(), charges...))(r)
	var all []core.Result
	for _, result := range d.Results() {
		all = append(all, result)
	}
	return all
}

// setSlot gives the Guard a Slot with these caps.
func setSlot(cfg *llm.Config, caps ...nethttp.Cap) *semaphore.Semaphore {
	s := core.Must(semaphore.New(cfg.Guard.Gate, semaphore.Config{Name: "streams"}))
	cfg.Guard.Slot = &nethttp.Slot{Semaphore: s, Caps: caps}
	return s
}

// holders returns how many hold a slot of a key.
func holders(t *testing.T, s *semaphore.Semaphore, key core.Key) int {
	t.Helper()
	all, _, err := s.Holders(t.Context(), key)
	gatetest.NoError(t, err)
	return len(all)
}

// policy returns a limit on a year.
func policy(name string, unit core.Unit, limit int64) *core.Policy {
	return core.Must(core.NewPolicy(core.PolicyConfig{
		Name: name, Unit: unit, Hold: time.Minute,
		Algorithm: core.Calendar{Limit: limit, Every: core.PeriodYear, In: time.UTC},
	}))
}

func read(t *testing.T, response *http.Response) string {
	t.Helper()
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	gatetest.Worked(t, err)
	return string(body)
}

// usageChunk states a number of input and of output tokens.
const usageChunk = `data: {"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}` + "\n\n"

// chat streams that many tokens, and the usage if the request asks for it.
func chat(prompt, tokens int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range tokens {
			fmt.Fprint(w, word)
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, usageChunk, prompt, tokens)
		fmt.Fprint(w, "data: [DONE]\n\n")
	}
}

const streamed = `{"model":"m","stream":true,"max_tokens":50,"messages":[{"role":"user","content":"abcdefgh"}]}`

// A stream whose server has sent all of the answer is not ended, whatever it has used.
func TestWholeAnswerIsNotEnded(t *testing.T) {
	for _, c := range []struct{ path, transcript string }{
		{"/v1/chat/completions", "chat-text.sse"},
		{"/v1/responses", "responses-text.sse"},
		{"/v1/messages", "messages-text.sse"},
	} {
		body := gatetest.Must(os.ReadFile(filepath.Join("internal", "wire", "testdata", c.transcript)))(t)
		whole := string(body)
		for _, halves := range []bool{false, true} {
			r := newRig(t, core.UnitOutputTokens, 1, func(cfg *llm.Config) {
				cfg.MaxOutput, cfg.ChargeEvery, cfg.Overrun = 1, 1, llm.OverrunEnd
			})
			r.handle(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				last := len(whole)
				if halves { // the budget denies within the last event
					last--
				}
				fmt.Fprint(w, whole[:last])
				fmt.Fprint(w, whole[last:])
			})
			got := read(t, r.post(c.path, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`))
			gatetest.Equal(t, got, whole, "%s: the client was sent", c.transcript)
			if report := <-r.reports; report.Outcome != llm.OutcomeReported ||
				report.Usage.Output < 2 {
				t.Errorf("%s: %+v", c.transcript, report)
			}
		}
	}
}

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
	_, err := llm.New(cfg)
	if err == nil {
		t.Fatal("no fault")
	}
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
		gatetest.Equal(t, strings.Count(err.Error(), want), 1, "%q is not reported once", want)
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

func TestEnumerationsHaveNames(t *testing.T) {
	gatetest.Names(t, llm.UnknownModelRefuse, llm.UnknownModelDearest, llm.UnknownModel(9))
	gatetest.Names(t, llm.StatedCostIgnore, llm.StatedCostTrust, llm.StatedCost(9))
	gatetest.Names(t, llm.OverrunDebt, llm.OverrunEnd, llm.Overrun(9))
	gatetest.Names(t, llm.AbortStop, llm.AbortDrain, llm.Abort(9))
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
		gatetest.Equal(t, hub.Varies.(func(*core.Policy) bool)(budget.Policy), plan != nil, "%s: varies", name)
	}
}
