package llm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
	p := core.Must(llm.LoadPrices(cfg))
	t.Cleanup(p.Close)
	return p
}

func priceFile(name string) string { return filepath.Join("testdata", "prices", name) }

// Every field that the three kinds of files price arrives, and all others are listed.
func TestLoadPrices(t *testing.T) {
	var files map[string]struct {
		Models map[string]*llm.Model // nil is not known
		Unread []string              // the beginnings of all
	}
	decode(t, filepath.Join("testdata", "prices-expect.json"), &files)
	if len(files) != 3 {
		t.Fatalf("%d files", len(files))
	}
	for file, c := range files {
		t.Run(file, func(t *testing.T) {
			p := load(t, llm.PricesConfig{Paths: []string{priceFile(file)}})
			for name, want := range c.Models {
				got, ok := p.Model(name)
				if ok != (want != nil) {
					t.Errorf("%s: known %v", name, ok)
				}
				if want == nil {
					want = new(llm.Model)
				}
				if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", *want) { // an empty map is as nil
					t.Errorf("%s:\n%+v, want\n%+v", name, got, *want)
				}
			}
			if !slices.EqualFunc(p.Unread(), c.Unread, strings.HasPrefix) {
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
		p := core.Must(llm.LoadPrices(llm.PricesConfig{Paths: []string{path}, Observe: func(_ context.Context, e core.Event) {
			told <- e.(*llm.PricesEvent).Err
		}}))
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
