package llm_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// costCase is what testdata/llmcases says of one response: what it used, and what that costs by an
// independent calculation.
type costCase struct {
	Model   string
	Usage   caseTokens
	OfWhich struct{ Reasoning int64 } `json:"of_which"`
	Also    []struct {
		Model string
		Usage caseTokens
	}
	Units        map[string]int64
	Labels       map[string]string
	Tariffs      map[string]caseTariff
	MicroDollars *int64 `json:"micro_dollars"`
}

// caseTokens is a number for each kind of token. A price that is absent is nil.
type caseTokens map[string]*int64

type caseTariff struct {
	Tokens caseTokens
	Steps  []struct {
		From   int64
		Tokens caseTokens
	}
	Units, Factors map[string]int64
}

func costCases(t *testing.T) map[string]costCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "llmcases", "*", "expect.json"))
	if err != nil || len(files) != 110 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	cases := make(map[string]costCase)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var c costCase
		if err := json.Unmarshal(text, &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		cases[filepath.Base(filepath.Dir(file))] = c
	}
	return cases
}

func (c caseTokens) of(kind string) int64 {
	if n := c[kind]; n != nil {
		return *n
	}
	return 0
}

func (c caseTokens) usage(reasoning int64) llm.Usage {
	return llm.Usage{
		Input: c.of("input"), CacheRead: c.of("cache_read"), CacheWrite: c.of("cache_write"),
		CacheWriteLong: c.of("cache_write_long"), AudioIn: c.of("audio_in"), ImageIn: c.of("image_in"),
		Output: c.of("output"), AudioOut: c.of("audio_out"), ImageOut: c.of("image_out"),
		Reasoning: reasoning,
	}
}

// price returns prices, of which one of 0 is free.
func (c caseTokens) price() llm.Price {
	of := func(kind string) int64 {
		if n := c[kind]; n != nil && *n == 0 {
			return llm.Free
		}
		return c.of(kind)
	}
	return llm.Price{
		Input: of("input"), CacheRead: of("cache_read"), CacheWrite: of("cache_write"),
		CacheWriteLong: of("cache_write_long"), AudioIn: of("audio_in"), ImageIn: of("image_in"),
		Output: of("output"), AudioOut: of("audio_out"), ImageOut: of("image_out"),
		Reasoning: of("reasoning"),
	}
}

func (c costCase) bill() llm.Bill {
	b := llm.Bill{
		Model: c.Model, Usage: c.Usage.usage(c.OfWhich.Reasoning), Units: c.Units, Labels: c.Labels,
	}
	for _, o := range c.Also {
		b.Others = append(b.Others, llm.ModelUsage{Model: o.Model, Usage: o.Usage.usage(0)})
	}
	return b
}

func (c costCase) models() map[string]llm.Model {
	models := make(map[string]llm.Model)
	for name, tariff := range c.Tariffs {
		t := llm.Tariff{Price: tariff.Tokens.price(), Units: tariff.Units, Factors: tariff.Factors}
		for _, s := range tariff.Steps {
			t.Steps = append(t.Steps, llm.Step{From: s.From, Price: s.Tokens.price()})
		}
		models[name] = llm.Model{Tariff: t}
	}
	return models
}

// priced returns a Meter with a budget of money on those models.
func priced(t testing.TB, models map[string]llm.Model, change func(*llm.Config)) *llm.Meter {
	t.Helper()
	cfg := llm.Config{
		Guard:   nethttp.Config{Gate: core.Must(core.NewMemory(core.Config{}))},
		Budgets: []llm.Budget{{Policy: policy("money", core.UnitMicroDollars, 1e15), Key: tenant}},
		Models:  models,
	}
	if change != nil {
		change(&cfg)
	}
	t.Cleanup(func() { _ = cfg.Guard.Gate.Close(context.Background()) })
	m, err := llm.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each case costs what its bill says, to the micro-dollar, and nothing of it is unknown.
func TestCasesCostToTheMicroDollar(t *testing.T) {
	counted := 0
	for name, c := range costCases(t) {
		t.Run(name, func(t *testing.T) {
			bill, sum := c.bill(), int64(0)
			for _, n := range c.Usage {
				sum += *n
			}
			if got := bill.Usage.Total(); got != sum {
				t.Errorf("%d tokens, want %d", got, sum)
			}
			if c.MicroDollars == nil {
				return
			}
			counted++
			got, unknown := priced(t, c.models(), nil).Cost(bill)
			if got != *c.MicroDollars || len(unknown) > 0 {
				t.Errorf("%d micro-dollars, want %d; unknown %q", got, *c.MicroDollars, unknown)
			}
		})
	}
	if counted != 60 {
		t.Errorf("%d cases have a cost", counted)
	}
}

// Each case costs what its bill says when it passes a Meter, and what the server states if that is
// trusted.
func TestCasesAreCharged(t *testing.T) {
	costs := costCases(t)
	for _, c := range llmCases(t) {
		cost := costs[filepath.Base(c.dir)]
		charge := func(name string, want int64, change func(*llm.Config)) {
			t.Run(filepath.Base(c.dir)+" "+name, func(t *testing.T) {
				r := newRig(t, core.UnitMicroDollars, 1e12, change)
				r.answer = c.answer(len(c.body), false, rand.New(rand.NewPCG(1, 2)))
				read(t, r.post(c.path, c.ask, "Content-Type", c.contentType))
				report := <-r.reports
				others := slices.DeleteFunc(report.Unknown, func(s string) bool { // an invented case names any model
					return s == "model "+report.Model
				})
				if used := r.used(); used != want || report.Cost != want || len(others) > 0 {
					t.Errorf("%d micro-dollars are used, want %d: %+v", used, want, report)
				}
			})
		}
		if cost.MicroDollars != nil {
			charge("by tariff", *cost.MicroDollars, func(cfg *llm.Config) { cfg.Models = cost.models() })
		}
		if c.Stated > 0 {
			charge("as stated", c.Stated, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{c.Model: {Tariff: llm.Tariff{Price: each}}}
				cfg.StatedCost = llm.StatedCostTrust
			})
		}
	}
}
