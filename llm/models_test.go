package llm_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/llm/internal/wire"
	"github.com/headgate/headgate/plans"
)

// toSmall downgrades every request for the large model.
func toSmall(r *http.Request, _ *nethttp.Admission) string {
	if q, _ := llm.RequestFrom(r.Context()); q.Model == "large" {
		return "small"
	}
	return ""
}

// A request whose budget is spent is served by the cheaper model, and charged by its price. The
// client, the server and the report are told.
func TestDowngrade(t *testing.T) {
	for name, path := range map[string]string{
		"chat": chatPath, "responses": "/v1/responses", "messages": "/v1/messages",
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, gate *core.Gate) {
				var decided []bool
				r := newRig(t, core.UnitMicroDollars, 79, func(cfg *llm.Config) { // the large model would cost 80
					cfg.Guard.Gate, cfg.Models, cfg.Downgrade = gate, twoModels(), toSmall
					cfg.Guard.Observe = observed(func(a *nethttp.Admission) { decided = append(decided, a.Allowed()) })
					cfg.Budgets = append(cfg.Budgets, llm.Budget{
						Policy: policy("large", core.UnitTokens, 7), Key: tenant, Models: []string{"large"},
					})
				})
				r.answer = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set(llm.ModelHeader, "of the server")
					fmt.Fprint(w, `{"model":"small","usage":{"prompt_tokens":3,"completion_tokens":2,"input_tokens":3,"output_tokens":2}}`)
				}
				r.spend(1)
				body := strings.Replace(of("large", false), `"stream"`, ` "x":"é\n\"model\":" , "stream"`, 1)
				response := r.post(path, body)
				if read(t, response); response.StatusCode != 200 ||
					fmt.Sprint(response.Header.Values(llm.ModelHeader)) != "[small]" {
					t.Errorf("%d, %s", response.StatusCode, response.Header)
				}
				gatetest.Equal(t, r.asked[0], strings.Replace(body, `"large"`, `"small"`, 1), "the server was asked")
				report := r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 2}, 6)
				if report.Request.Model != "small" || report.Request.Asked != "large" {
					t.Errorf("the report has %+v", report.Request)
				}
				gatetest.Equal(t, fmt.Sprint(decided), "[true]", "the observer of the guard was told %v", decided)
			})
		})
	}
}

// A stream that was downgraded has its usage hidden as it would have been, and a budget that the
// first model alone has is not charged.
func TestDowngradedStream(t *testing.T) {
	r := newRig(t, core.UnitMicroDollars, 79, func(cfg *llm.Config) {
		cfg.Models, cfg.Downgrade, cfg.ChargeEvery = twoModels(), toSmall, 1
		cfg.Budgets = append(cfg.Budgets, llm.Budget{
			Policy: policy("large", core.UnitTokens, 1000), Key: tenant, Models: []string{"large"},
		})
	})
	r.spend(10)
	r.answer = chat(3, 20)
	body := read(t, r.post(chatPath, of("large", true)))
	if strings.Count(body, "word") != 20 || strings.Contains(body, "prompt_tokens") {
		t.Errorf("the client was sent %s", body)
	}
	if !strings.Contains(r.asked[0], `"include_usage":true`) || !strings.Contains(r.asked[0], `"model":"small"`) {
		t.Errorf("the server was asked %s", r.asked[0])
	}
	r.want(llm.OutcomeReported, llm.Usage{Input: 3, Output: 20}, 33)
	gatetest.Equal(t, fmt.Sprint(r.peekUsed()), "[33 0]", "are used")
}

// What cannot be downgraded is refused, and spends nothing.
func TestNoDowngrade(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*llm.Config)
		want   string // in the refusal
	}{
		"nothing is cheaper": {func(cfg *llm.Config) {
			cfg.Downgrade = func(*http.Request, *nethttp.Admission) string { return "" }
		}, `\"budget\"`},
		"the same model": {func(cfg *llm.Config) {
			cfg.Downgrade = func(*http.Request, *nethttp.Admission) string { return "large" }
		}, `\"budget\"`},
		"an unknown model": {func(cfg *llm.Config) {
			cfg.Downgrade = func(*http.Request, *nethttp.Admission) string { return "unknown" }
		}, `\"budget\"`},
		"the cheaper model is denied too": {func(cfg *llm.Config) {
			cfg.Budgets = append(cfg.Budgets, llm.Budget{
				Policy: policy("tokens-of-small", core.UnitTokens, 9), Key: tenant, Models: []string{"small"},
			})
			cfg.Guard.Rules = []nethttp.Rule{{
				Policy: policy("small-requests", core.UnitRequests, 1), Key: tenant, Skip: llm.UnlessModel("small"),
				Cost: func(*http.Request) int64 { return 2 },
			}}
		}, `\"small-requests\"`},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			r := newRig(t, core.UnitMicroDollars, 79, func(cfg *llm.Config) {
				cfg.Models, cfg.Downgrade = twoModels(), toSmall
				c.change(cfg)
				inner := cfg.Downgrade
				cfg.Downgrade = func(q *http.Request, a *nethttp.Admission) string {
					asked++
					for d := range a.Denials() {
						gatetest.Equal(t, d.Policy.Name(), "budget", "denies")
					}
					return inner(q, a)
				}
			})
			r.spend(75)
			response := r.post(chatPath, of("large", false))
			if body := read(t, response); response.StatusCode < 400 || !strings.Contains(body, c.want) || asked != 1 {
				t.Errorf("asked %d times: %d %s", asked, response.StatusCode, body)
			}
			gatetest.Equal(t, response.Header.Get(llm.ModelHeader), "", "the refusal names the model")
			if n := r.used(); n != 75 || len(r.asked) > 0 {
				t.Errorf("%d units are used, the server was asked %q", n, r.asked)
			}
		})
	}
}

// A denial that was answered by another model is no strike.
func TestDowngradeIsNoStrike(t *testing.T) {
	r := newRig(t, core.UnitMicroDollars, 79, func(cfg *llm.Config) {
		cfg.Models, cfg.Downgrade = twoModels(), toSmall
		cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) { return llm.Usage{Output: 8}, nil }
		cfg.Guard.Blocks = []nethttp.BlockRule{{
			Policy: bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour}), Key: tenant, Denied: true,
		}}
	})
	r.handle(chat(3, 2))
	r.spend(64)
	for i, status := range []int{200, 200, 429, 429} { // 5 micro-dollars each
		if got, body := r.ask(chatPath, of("large", true)); got != status || (i == 3) != strings.Contains(body, "blocked") {
			t.Errorf("%d: %d %s", i, got, body)
		}
		if status == 200 {
			<-r.reports
		}
	}
}

// A change of the model has its name and no other byte.
func TestModelChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.StringMatching(`[ \n\t\r]{0,3}`)
		member := rapid.SampledFrom([]string{
			`"a":{"model":"x"}`, `"b":["model",{"model":1}]`, `"c":"\"model\":\"x\""`, `"d":1e3`, `"e":null`, `"f":"😀\u0000"`,
		})
		name := rapid.SampledFrom([]string{`"large"`, `"l\u0061rge"`, `"é/\""`}).Draw(t, "name")
		before, after := "{"+space.Draw(t, "space"), ""
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			before += member.Draw(t, "member") + space.Draw(t, "space") + ","
		}
		before += `"model"` + space.Draw(t, "space") + ":" + space.Draw(t, "space")
		for range rapid.IntRange(0, 3).Draw(t, "after") {
			after += "," + space.Draw(t, "space") + member.Draw(t, "member")
		}
		after += space.Draw(t, "space") + "}" + space.Draw(t, "space")
		body := before + name + after
		q, err := wire.ParseRequest(wire.Target{Format: wire.OpenAIChat}, nil, []byte(body))
		change, ok := q.ModelChange([]byte(body), `small "1"`)
		got := change.Apply([]byte(body))
		if want := before + `"small \"1\""` + after; err != nil || !ok || string(got) != want {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	})
}

// Where the path names the model, the downgrade is there, and in a body that names it too.
func TestDowngradeInThePath(t *testing.T) {
	for path, want := range map[string]string{
		"/openai/deployments/large/chat/completions?api-version=1": "/openai/deployments/small%2Fnew/chat/completions?api-version=1",
		"/v1beta/models/large:generateContent":                     "/v1beta/models/small%2Fnew:generateContent",
		"/model/large/converse/":                                   "/model/small%2Fnew/converse/",
	} {
		var asked, body string
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
			cfg.Budgets[0].Policy = policy("budget", core.UnitTokens, 1)
			cfg.Budgets[0].Models = []string{"large"}
			cfg.Models = map[string]llm.Model{"large": {}, "small/new": {}}
			cfg.Downgrade = func(*http.Request, *nethttp.Admission) string { return "small/new" }
		})
		r.handle(func(_ http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			asked, body = q.URL.RequestURI(), string(b)
		})
		r.spend(1)
		response := r.post(path, `{"model":"large"}`)
		read(t, response)
		named := body == `{"model":"small/new"}`
		gatetest.Equal(t, named, strings.Contains(path, "deployments"), "%s: the body names it", path)
		if report := <-r.reports; asked != want || response.Header.Get(llm.ModelHeader) != "small/new" ||
			report.Request.Model != "small/new" || report.Request.Asked != "large" {
			t.Errorf("%s: the server was asked for %s, %+v", path, asked, report.Request)
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
		status, _ := r.ask(chatPath, c.body)
		gatetest.Equal(t, status, c.want, "%+v, %s: status", c.plan, c.body)
	}
}

// Nobody downgrades a request that names several models, whose server would still know the others, or
// a form, which is not changed.
func TestSeveralModelsAndFormsAreNotDowngraded(t *testing.T) {
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
		status, _ := r.ask(chatPath, body)
		gatetest.Equal(t, status, http.StatusForbidden, "%s: status", body)
	}
	const form = "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nlarge\r\n--x--\r\n"
	status, _ := r.ask("/v1/audio/transcriptions", form, "Content-Type", "multipart/form-data; boundary=x")
	gatetest.Equal(t, status, http.StatusForbidden, "a form: status")
	r.unasked()
}

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
		gatetest.Equal(t, ok, true, "%s sees the request", where)
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
		setSlot(cfg, nethttp.Cap{Key: key("Cap"), Limit: 1})
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
		gatetest.Equal(t, seen[where], want, "%s sees", where)
	}
	gatetest.Equal(t, report.Request, want, "the report has")
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
		gatetest.NoError(t, err)
		return d.At(0).Used
	}
	acme := core.Must(tenant(r.request(chatPath, "")))
	check := func(what string, want ...int64) {
		t.Helper()
		got := []int64{
			used(large, acme), used(streams, acme), used(each, "small"), used(each, "large"), used(each, "*"), used(r.budget, acme),
		}
		gatetest.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "%s: used", what)
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
	book := core.Must(plans.New(plans.Config{Set: set}))
	defer book.Close()
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Models = twoModels()
		cfg.Guard.Plan = book.Plan(tenant)
		cfg.Guard.Rules = []nethttp.Rule{{
			Policy: policy("requests", core.UnitRequests, 9), Key: keyfunc.Must(keyfunc.Join(tenant, llm.ModelKey)),
		}}
		setSlot(cfg, nethttp.Cap{Name: "running", Key: tenant, Limit: 7})
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
		status, _ := r.ask(chatPath, of(step.model, true))
		gatetest.Equal(t, status, step.status, "%s: status", step.model)
	}
	gatetest.Equal(t, strings.Join(limits, ", "), "1 30 1, 3 1000 0, 3 1000 0, 3 1000 0", "the limits were")
}

// A cap may be for each model, and for streams only.
func TestCapsOfSomeRequests(t *testing.T) {
	r := newRig(t, core.UnitTokens, 100_000, func(cfg *llm.Config) {
		cfg.Models = twoModels()
		setSlot(cfg, nethttp.Cap{Name: "all", Key: tenant, Limit: 9}, nethttp.Cap{Name: "each-model", Key: llm.ModelKey, Limit: 1})
		cfg.Guard.Slot.Skip = llm.UnlessStream
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
