package llm_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A price file has the prices of models, and a Meter that has it follows its changes.
func ExampleLoadPrices() {
	prices, err := llm.LoadPrices(llm.PricesConfig{
		Paths:     []string{"testdata/prices/litellm.json"},
		Providers: []string{"globex", "xai"},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer prices.Close()
	for _, line := range prices.Unread() { // of all providers
		if strings.HasPrefix(line, "uneven: input") {
			fmt.Println(line)
		}
	}
	meter, err := llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitMicroDollars, 50_000_000)},
		Prices:  prices,
	})
	if err != nil {
		log.Fatal(err)
	}
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
	meter, err := llm.New(llm.Config{
		Guard:   nethttp.Config{Gate: newGate()},
		Budgets: []llm.Budget{aMonth(core.UnitMicroDollars, 50_000_000)},
		Models: map[string]llm.Model{
			"small": {Tariff: llm.Tariff{
				Price:   llm.Price{Input: 3_000_000, Output: 15_000_000},
				Units:   map[string]int64{"web_search": 10_000_000},
				Factors: map[string]int64{"service_tier:batch": 500, "service_tier:priority": 2000},
			}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
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
