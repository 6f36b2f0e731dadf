package llm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// newGate returns a Gate in memory whose clock stands still, so that the output of an example is
// the same in every run. A gateway with several processes uses core.NewRedis.
func newGate() *core.Gate {
	return core.Must(core.NewMemory(core.Config{Clock: core.NewManualClock(time.Unix(1_800_000_000, 0)).Now}))
}

// aMonth returns a budget of a month for each API key.
func aMonth(unit core.Unit, limit int64) llm.Budget {
	return llm.Budget{
		Policy: core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "month", Unit: unit, OnFailure: core.FailClosed, Hold: 30 * time.Second,
			Algorithm: core.Calendar{Limit: limit, Every: core.PeriodMonth, In: time.UTC},
		})),
		Key: keyfunc.BearerToken(),
	}
}

// model answers with 8 tokens of output for 12 of input. It may also be a reverse proxy in front of
// a server that does.
var model = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"choices":[{"message":{"content":"It opens at dawn."}}],`+
		`"usage":{"prompt_tokens":12,"completion_tokens":8}}`)
})

// ask asks the model through a Meter.
func ask(m *llm.Meter) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(
		`{"model":"small","max_tokens":500,"messages":[{"role":"user","content":"When does the gate open?"}]}`))
	r.Header.Set("Authorization", "Bearer sk-acme")
	w := httptest.NewRecorder()
	m.Handler(model).ServeHTTP(w, r)
	return w
}

func ExampleNew() {
	meter := core.Must(llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitTokens, 1000)},
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*llm.ResponseEvent); ok {
				fmt.Println(e.Outcome, e.Estimate.Total(), "estimated,", e.Usage.Total(), "used")
			}
		},
	}))
	fmt.Println(ask(meter).Header().Get("X-Ratelimit-Remaining-Tokens"), "remain for now")
	fmt.Println(ask(meter).Header().Get("X-Ratelimit-Remaining-Tokens"), "remain for now")
	// Output:
	// reported 507 estimated, 20 used
	// 493 remain for now
	// reported 44 estimated, 20 used
	// 936 remain for now
}

// A budget of money needs the price of every model, in millionths of a dollar for a million tokens.
func ExampleModel() {
	gate := newGate()
	meter, err := llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: gate},
		Budgets: []llm.Budget{aMonth(core.UnitMicroDollars, 50_000_000)}, // 50 dollars
		Models: map[string]llm.Model{
			"small": {Tariff: llm.Tariff{Price: llm.Price{
				Input: 3_000_000, CacheRead: 300_000, CacheWrite: 3_750_000, Output: 15_000_000,
			}}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ask(meter)
	fmt.Println(used(gate, meter), "micro-dollars") // 12 tokens at 3 and 8 at 15 micro-dollars
	// Output:
	// 156 micro-dollars
}

// Do not give prices in dollars. They are 3 dollars for a million tokens below, and count as 3
// millionths of a dollar, so every request costs next to nothing.
func ExampleModel_incorrect() {
	gate := newGate()
	meter, err := llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: gate},
		Budgets: []llm.Budget{aMonth(core.UnitMicroDollars, 50_000_000)},
		Models: map[string]llm.Model{
			"small": {Tariff: llm.Tariff{Price: llm.Price{Input: 3, Output: 15}}}, // wrong: write 3_000_000 and 15_000_000
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ask(meter)
	fmt.Println(used(gate, meter), "micro-dollars") // rounded up
	// Output:
	// 1 micro-dollars
}

// A tokenizer replaces the built-in estimate. It returns an ErrRequest for a body that it cannot
// read.
func ExampleConfig_estimate() {
	tokenize := func(body []byte) (int64, error) { // the one of the model
		if len(body) == 0 {
			return 0, errors.New("no text")
		}
		return int64(len(strings.Fields(string(body)))), nil
	}
	meter := core.Must(llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitTokens, 1000)},
		Estimate: func(_ *http.Request, q llm.Request, body []byte) (llm.Usage, error) {
			input, err := tokenize(body)
			if err != nil {
				return llm.Usage{}, fmt.Errorf("%w: %v", llm.ErrRequest, err)
			}
			return llm.Usage{Input: input, Output: min(q.MaxOutput, 100)}, nil
		},
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*llm.ResponseEvent); ok {
				fmt.Println(e.Estimate.Input, "and", e.Estimate.Output)
			}
		},
	}))
	ask(meter)
	// Output:
	// 5 and 100
}

// used returns what is used of the first budget.
func used(gate *core.Gate, m *llm.Meter) int64 {
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", nil)
	r.Header.Set("Authorization", "Bearer sk-acme")
	charges, err := m.Guard(llm.FormatOpenAIChat).Charges(r)
	if err != nil {
		log.Fatal(err)
	}
	d, err := gate.Peek(r.Context(), charges...)
	if err != nil {
		log.Fatal(err)
	}
	return d.At(0).Used
}

func ExampleConfig_downgrade() {
	large := llm.Budget{
		Policy: core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "large", Unit: core.UnitTokens, Hold: 30 * time.Second,
			Algorithm: core.Calendar{Limit: 20, Every: core.PeriodDay, In: time.UTC},
		})),
		Key: keyfunc.BearerToken(), Models: []string{"large"},
	}
	meter, err := llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitTokens, 1000), large},
		Models:  map[string]llm.Model{"small": {}, "large": {}},
		Downgrade: func(r *http.Request, denied *nethttp.Admission) string {
			q, _ := llm.RequestFrom(r.Context())
			for d := range denied.Denials() {
				if d.Policy != large.Policy {
					return "" // the month is spent
				}
			}
			fmt.Println(q.Model, "is spent")
			return "small"
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"model":"large","max_tokens":8}`))
		r.Header.Set("Authorization", "Bearer sk-acme")
		w := httptest.NewRecorder()
		meter.Handler(model).ServeHTTP(w, r)
		fmt.Printf("%d %q\n", w.Code, w.Header().Get(llm.ModelHeader))
	}
	// Output:
	// 200 ""
	// large is spent
	// 200 "small"
}

// A price file has the prices of models, and a Meter that has it follows its changes.
func ExampleLoadPrices() {
	prices := core.Must(llm.LoadPrices(llm.PricesConfig{
		Paths:     []string{"testdata/prices/litellm.json"},
		Providers: []string{"globex", "xai"},
	}))
	defer prices.Close()
	for _, line := range prices.Unread() { // of all providers
		if strings.HasPrefix(line, "uneven: input") {
			fmt.Println(line)
		}
	}
	meter := core.Must(llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitMicroDollars, 50_000_000)},
		Prices:  prices,
	}))
	cost, unknown := meter.Cost(llm.Bill{
		Model: "small", Usage: llm.Usage{Input: 1000, CacheRead: 31_001, Output: 500},
	})
	fmt.Println(cost, "micro-dollars", unknown) // at the prices of prompts above 32,000 tokens
	// Output:
	// uneven: input_cost_per_token is 1.0000000000001e-06: it is rounded to 1000000
	// 7876 micro-dollars []
}

// Tell what no tariff prices, or you find out by the invoice. It was charged as the dearest.
func ExampleMeter_Cost() {
	meter := core.Must(llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitMicroDollars, 50_000_000)},
		Models: map[string]llm.Model{
			"small": {Tariff: llm.Tariff{
				Price:   llm.Price{Input: 3_000_000, Output: 15_000_000},
				Units:   map[string]int64{"web_search": 10_000_000},
				Factors: map[string]int64{"service_tier:batch": 500, "service_tier:priority": 2000},
			}},
		},
	}))
	bill := llm.Bill{
		Model: "small", Usage: llm.Usage{Input: 1000, Output: 100},
		Units:  map[string]int64{"web_search": 2},
		Labels: map[string]string{"service_tier": "batch"},
	}
	fmt.Println(meter.Cost(bill)) // half of 4,500 micro-dollars, and two searches
	bill.Labels = map[string]string{"service_tier": "ultra"}
	fmt.Println(meter.Cost(bill))
	// Output:
	// 22250 []
	// 29000 [label service_tier:ultra]
}
