package llm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

func load(t testing.TB, cfg llm.PricesConfig) *llm.Prices {
	t.Helper()
	p, err := llm.LoadPrices(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func priceFile(name string) string { return filepath.Join("testdata", "prices", name) }

// short and long are prices of the model large of litellm.json, of which a label has multiplied those
// that it does not state.
func short(label string, input, output, times int64) llm.Step {
	return llm.Step{Label: label, Price: llm.Price{
		Input: input, CacheRead: 300_000 * times, CacheWrite: 3_750_000 * times, CacheWriteLong: 6_000_000 * times,
		AudioIn: 10_000_000 * times, ImageIn: 4_000_000 * times, Output: output, AudioOut: 80_000_000 * times,
		ImageOut: 40_000_000 * times, Reasoning: 20_000_000 * times,
	}}
}

func long(label string, from, input, output, times int64) llm.Step {
	s := short(label, input, output, times)
	s.From = from
	s.Price.CacheRead, s.Price.CacheWrite = 600_000*times, 7_500_000*times
	s.Price.CacheWriteLong = 12_000_000 * times
	return s
}

// Every field that the three kinds of files price arrives, and all others are listed.
func TestLoadPrices(t *testing.T) {
	for _, c := range []struct {
		file   string
		models map[string]llm.Model
		unread []string // the beginnings of all
	}{
		{"litellm.json", map[string]llm.Model{
			"large": {MaxOutput: 64_000, Tariff: llm.Tariff{
				Price: llm.Price{
					Input: 3_000_000, CacheRead: 300_000, CacheWrite: 3_750_000, CacheWriteLong: 6_000_000,
					AudioIn: 10_000_000, ImageIn: 4_000_000, Output: 15_000_000, AudioOut: 80_000_000,
					ImageOut: 40_000_000, Reasoning: 20_000_000,
				},
				Steps: []llm.Step{
					long("", 200_001, 6_000_000, 22_500_000, 1),
					short("service_tier:batch", 1_500_000, 10_000_000, 1),
					long("service_tier:batch", 200_001, 6_000_000, 22_500_000, 1),
					short("service_tier:flex", 1_500_000, 7_500_000, 1),
					long("service_tier:flex", 200_001, 6_000_000, 22_500_000, 1),
					short("service_tier:priority", 6_000_000, 30_000_000, 2),
					long("service_tier:priority", 200_001, 12_000_000, 45_000_000, 2),
				},
				Units: map[string]int64{
					"container": 30_000_000, "file_search": 2_500_000, "web_search": 10_000_000,
				},
				Factors: map[string]int64{"speed:fast": 6000, "geo:us": 1100, "geo:eu": 1100},
			}},
			"small": {Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_250_000, CacheRead: 125_000, Output: llm.Free},
				Steps: []llm.Step{{From: 32_001, Price: llm.Price{
					Input: 2_500_000, CacheRead: 125_000, Output: 3_000_000,
				}}},
			}},
			"xai/reached": {Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_000_000, Output: 4_000_000},
				Steps: []llm.Step{{From: 128_000, Price: llm.Price{Input: 2_000_000, Output: 4_000_000}}},
			}},
			"search-by-prompt": {Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_000_000, Output: 4_000_000},
				Units: map[string]int64{"grounded_prompt": 35_000_000},
			}},
			"search-by-query": {Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_000_000, Output: 4_000_000},
				Units: map[string]int64{"web_search": 14_000_000},
			}},
			"rerank":      {Tariff: llm.Tariff{Price: free.Price, Units: map[string]int64{"rerank_search": 2_000_000}}},
			"whisper":     {Tariff: llm.Tariff{Price: free.Price, Units: map[string]int64{"audio_ms": 100}}},
			"uneven":      {Tariff: llm.Tariff{Price: llm.Price{Input: 1_000_000, Output: 150_000}}},
			"tiny":        {Tariff: llm.Tariff{Price: llm.Price{Input: 1, Output: 2}}},
			"huge":        {},
			"spoken":      {Tariff: llm.Tariff{Price: free.Price, Units: map[string]int64{"audio_ms": 6}}},
			"committed":   {},
			"pixels":      {},
			"sample_spec": {},
		}, []string{
			"committed: prices of tokens are missing",
			"huge: input_cost_per_token is 2: it is no number that is at least 0, or too large",
			"huge: prices of tokens are missing",
			"large: cache_read_input_audio_token_cost is not known",
			"large: provider_specific_entry.moon is not known",
			"large: search_context_cost_per_query.search_context_size_high differs",
			"large: unheard_of is not known",
			"pixels: input_cost_per_pixel is not known",
			"pixels: prices of tokens are missing",
			"spoken: input_cost_per_second is 5.56e-06: it is rounded to 6",
			"tiny: input_cost_per_token is 1.0004e-12: it is rounded to 1",
			"tiny: output_cost_per_token is 1.2e-12: it is rounded to 2",
			"uneven: input_cost_per_token is 1.0000000000001e-06: it is rounded to 1000000",
			"uneven: output_cost_per_token is 1.5000000000000002e-07: it is rounded to 150000",
		}},
		{"genai.json", map[string]llm.Model{
			"acme/large": {Tariff: llm.Tariff{
				Price: llm.Price{
					Input: 3_000_000, CacheRead: 300_000, CacheWrite: 3_750_000, CacheWriteLong: 6_000_000,
					AudioIn: 10_000_000, ImageIn: 4_000_000, Output: 15_000_000, AudioOut: 80_000_000,
					ImageOut: 40_000_000, Reasoning: 20_000_000,
				},
				Steps: []llm.Step{{From: 200_001, Price: llm.Price{
					Input: 6_000_000, CacheRead: 600_000, CacheWrite: 3_750_000, CacheWriteLong: 6_000_000,
					AudioIn: 10_000_000, ImageIn: 4_000_000, Output: 22_500_000, AudioOut: 80_000_000,
					ImageOut: 40_000_000, Reasoning: 20_000_000,
				}}},
				Units: map[string]int64{
					"audio_ms": 100, "container": 50_000_000, "citation_tokens": 2000, "request": 5_000_000,
					"rerank_search": 2_000_000, "file_search": 2_500_000, "web_search": 10_000_000,
				},
			}},
			"dated": {Tariff: llm.Tariff{Price: llm.Price{Input: 5_000_000, Output: 25_000_000}}},
			"hourly": {Tariff: llm.Tariff{Price: llm.Price{
				Input: 270_000, CacheRead: 70_000, Output: 1_100_000,
			}}},
			"embed":        {Tariff: llm.Tariff{Price: llm.Price{Input: 20_000, Output: 20_000}}},
			"globex/large": {Tariff: llm.Tariff{Price: llm.Price{Input: 4_000_000, Output: 16_000_000}}},
			"reached": {Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_250_000, CacheRead: 200_000, Output: 2_500_000},
				Steps: []llm.Step{{From: 200_000, Price: llm.Price{
					Input: 2_500_000, CacheRead: 200_000, Output: 2_500_000,
				}}},
				Units: map[string]int64{"x_search": 5_000_000},
			}},
			"large":    {}, // of acme, or of globex
			"unpriced": {},
		}, []string{
			"acme/hourly: prices differ by a constraint",
			"acme/large: input_video_mtok is not known",
			"acme/unpriced: prices of tokens are missing",
			"globex/embed: match is not understood",
			"globex/embed: unheard_of is not known",
			"large: name is used by acme/large and others",
		}},
		{"modelsdev.json", map[string]llm.Model{
			"large": {MaxOutput: 128_000, Tariff: llm.Tariff{
				Price: llm.Price{
					Input: 2_500_000, CacheRead: 250_000, CacheWrite: 3_125_000, AudioIn: 10_000_000,
					Output: 15_000_000, AudioOut: 80_000_000, Reasoning: 20_000_000,
				},
				Steps: []llm.Step{
					{From: 272_001, Price: llm.Price{
						Input: 5_000_000, CacheRead: 500_000, CacheWrite: 3_125_000, AudioIn: 10_000_000,
						Output: 22_500_000, AudioOut: 80_000_000, Reasoning: 20_000_000,
					}},
					{Label: "service_tier:priority", Price: llm.Price{
						Input: 5_000_000, CacheRead: 500_000, CacheWrite: 6_250_000, AudioIn: 20_000_000,
						Output: 30_000_000, AudioOut: 160_000_000, Reasoning: 40_000_000,
					}},
					{Label: "service_tier:priority", From: 272_001, Price: llm.Price{
						Input: 10_000_000, CacheRead: 1_000_000, CacheWrite: 6_250_000, AudioIn: 20_000_000,
						Output: 45_000_000, AudioOut: 160_000_000, Reasoning: 40_000_000,
					}},
					{Label: "speed:odd", Price: llm.Price{
						Input: 5_000_000, CacheRead: 516_750, CacheWrite: 6_459_375, AudioIn: 20_670_000,
						Output: 31_000_000, AudioOut: 165_360_000, Reasoning: 41_340_000,
					}},
					{Label: "speed:odd", From: 272_001, Price: llm.Price{
						Input: 10_335_000, CacheRead: 1_033_500, CacheWrite: 6_459_375, AudioIn: 20_670_000,
						Output: 46_507_500, AudioOut: 165_360_000, Reasoning: 41_340_000,
					}},
				},
			}},
			"acme/old": {MaxOutput: 4096, Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_000_000, Output: 2_000_000},
				Steps: []llm.Step{{From: 200_001, Price: llm.Price{Input: 2_000_000, Output: 3_000_000}}},
			}},
			"free": {MaxOutput: 4096, Tariff: free},
			"xai/reached": {Tariff: llm.Tariff{
				Price: llm.Price{Input: 1_250_000, Output: 2_500_000},
				Steps: []llm.Step{{From: 200_000, Price: llm.Price{Input: 2_500_000, Output: 5_000_000}}},
			}},
			"unpriced": {},
		}, []string{
			"acme/large: unheard_of is not known",
			"acme/old: cost.per_page is not known",
			"acme/unpriced: prices of tokens are missing",
		}},
	} {
		t.Run(c.file, func(t *testing.T) {
			p := load(t, llm.PricesConfig{Paths: []string{priceFile(c.file)}})
			for name, want := range c.models {
				got, ok := p.Model(name)
				if known := !reflect.DeepEqual(want, llm.Model{}); ok != known {
					t.Errorf("%s: known %v", name, ok)
				}
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) { // an empty map is as nil
					t.Errorf("%s:\n%+v, want\n%+v", name, got, want)
				}
			}
			same := slices.EqualFunc(p.Unread(), c.unread, strings.HasPrefix)
			if !same {
				t.Errorf("unread:\n%s", strings.Join(p.Unread(), "\n"))
			}
		})
	}
}

// The clauses of genai-prices match names of any case. Providers decide whose name it is.
func TestPricesByProvider(t *testing.T) {
	files := []string{priceFile("genai.json")}
	for _, c := range []struct {
		providers string
		name      string
		want      int64
	}{
		{"", "large-2-mini", 3_000_000}, {"", "LARGE-2", 3_000_000}, {"", "lar-ge-latest", 3_000_000},
		{"", "ge-latest", 0}, {"", "lg7", 3_000_000}, {"", "lg77", 0}, {"", "reached-fast", 1_250_000},
		{"acme globex", "large", 3_000_000}, {"globex acme", "large", 4_000_000},
		{"globex", "large-2", 0}, {"globex", "acme/large", 0}, {"", "", 0},
	} {
		var providers []string
		if c.providers != "" {
			providers = strings.Fields(c.providers)
		}
		p := load(t, llm.PricesConfig{Paths: files, Providers: providers})
		for range 2 { // the second answer is remembered
			if got, _ := p.Model(c.name); got.Tariff.Price.Input != c.want {
				t.Errorf("%s of %q: %+v, want %d", c.name, c.providers, got, c.want)
			}
		}
	}
}

func TestLoadPricesRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"is none of": `{"models":5}`, "unexpected EOF": `{"a":`, "bytes follow": `{} {}`,
		"have no model": `{"m":{"litellm_provider":"x"}}`, "has more than": strings.Repeat(" ", 16<<20+1),
		"EOF": "", "invalid character": "models:\n  - id: m\n",
	} {
		path := filepath.Join(dir, "prices")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := llm.LoadPrices(llm.PricesConfig{Paths: []string{path}}); err == nil ||
			!strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "llm: ") {
			t.Errorf("%.20q: %v, want %q", text, err, name)
		}
	}
	for _, cfg := range []llm.PricesConfig{{}, {Paths: []string{filepath.Join(dir, "none")}}} {
		if _, err := llm.LoadPrices(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

// A Meter charges by the file that holds now. A bad file changes nothing and is told once.
func TestPricesReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.json")
	write := func(input string) {
		text := `{"m":{"litellm_provider":"acme","input_cost_per_token":` + input + `,"output_cost_per_token":1e-06}}`
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1e-06")
	synctest.Test(t, func(t *testing.T) {
		told := make(chan error, 10)
		p, err := llm.LoadPrices(llm.PricesConfig{Paths: []string{path}, Observe: func(_ context.Context, e core.Event) {
			told <- e.(*llm.PricesEvent).Err
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		m := priced(t, nil, func(cfg *llm.Config) { cfg.Prices = p })
		cost := func(want int64, events int) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if got, unknown := m.Cost(llm.Bill{Model: "m", Usage: llm.Usage{Input: 10}}); got != want || len(unknown) > 0 {
				t.Errorf("%d, want %d; unknown %q", got, want, unknown)
			}
			if len(told) != events {
				t.Errorf("%d events, want %d", len(told), events)
			}
			for range len(told) {
				<-told
			}
		}
		cost(10, 0)
		write("2e-06")
		cost(20, 1)
		write(`"dear"`)
		cost(20, 1)
		write("3e-06")
		if err := p.Reload(); err != nil || <-told != nil {
			t.Errorf("%v", err)
		}
		cost(30, 0)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		cost(30, 1)
		if p.Reload() == nil {
			t.Error("Reload returns no error")
		}
	})
}

// Models replace those of a file, and what a file says a model can write bounds its estimate.
func TestModelsBeforePrices(t *testing.T) {
	p := load(t, llm.PricesConfig{Paths: []string{priceFile("modelsdev.json")}})
	for model, want := range map[string][2]int64{"large": {2, 5000}, "acme/large": {18, 5000}, "old": {3, 4096}} {
		r := newRig(t, core.UnitMicroDollars, 1e9, func(cfg *llm.Config) {
			cfg.Prices, cfg.MaxOutput = p, 5000
			cfg.Models = map[string]llm.Model{"large": {Tariff: llm.Tariff{Price: each}}}
		})
		r.answer = chat(1, 1)
		if response := r.post(chatPath, `{"model":"unpriced"}`); response.StatusCode != 404 {
			t.Errorf("status %d", response.StatusCode)
		}
		read(t, r.post(chatPath, `{"model":"`+model+`"}`))
		report := r.want(llm.OutcomeReported, llm.Usage{Input: 1, Output: 1}, want[0])
		if report.Cost != want[0] || report.Estimate.Output != want[1] {
			t.Errorf("%s: %+v", model, report)
		}
	}
}

// Each model of a file learns its own ratios, whatever name it goes by.
func TestListedModelsLearn(t *testing.T) {
	p := load(t, llm.PricesConfig{Paths: []string{priceFile("modelsdev.json")}})
	r := newRig(t, core.UnitTokens, 1e9, func(cfg *llm.Config) { cfg.Prices = p })
	r.answer = chat(1, 1)
	estimate := func(model string) int64 {
		read(t, r.post(chatPath, `{"model":"`+model+`"}`))
		return (<-r.reports).Estimate.Output
	}
	for _, c := range []struct {
		model string
		want  int64
	}{{"large", 4096}, {"large", 256}, {"acme/large", 256}, {"old", 4096}} {
		if got := estimate(c.model); got != c.want {
			t.Errorf("%s: %d, want %d", c.model, got, c.want)
		}
	}
}
