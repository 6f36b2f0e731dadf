package llm_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

// each is a tariff of a dollar for each million tokens, so that a token costs a micro-dollar.
var each = llm.Price{Input: 1_000_000, Output: 1_000_000}

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
	return gatetest.Must(llm.New(cfg))(t)
}

// TestCostIsExact has bills of which all is priced.
func TestCost(t *testing.T) {
	models := map[string]llm.Model{
		"plain": {Tariff: llm.Tariff{
			Price:   each,
			Units:   map[string]int64{"web_search": 10_000_000, "file_search": llm.Free, "request": 5_000_000},
			Factors: map[string]int64{"service_tier:flex": 500, "geo:us": 1100, "speed:test": llm.Free},
		}},
		"stepped": {Tariff: llm.Tariff{Price: each, Steps: []llm.Step{
			{From: 300, Price: llm.Price{Input: 3_000_000, Output: 9_000_000}},
			{From: 200, Price: llm.Price{Input: 2_000_000, CacheRead: llm.Free, Output: 2_000_000}},
		}}},
		"dear": {Tariff: llm.Tariff{
			Price:   llm.Price{Input: 7_000_000, Output: 7_000_000, Reasoning: 8_000_000, AudioOut: 80_000_000},
			Units:   map[string]int64{"x_search": 4_000_000, "audio_ms": 100},
			Factors: map[string]int64{"service_tier:priority": 2500, "speed:fast": 900},
		}},
		"grounded": {Tariff: llm.Tariff{Price: free.Price, Units: map[string]int64{
			"grounded_prompt": 35_000_000, "maps_prompt": 25_000_000,
		}}},
	}
	for _, c := range []struct {
		name    string
		bill    llm.Bill
		want    int64
		unknown []string
	}{
		{"nothing", llm.Bill{Model: "plain"}, 0, nil},
		{"reasoning beyond the output",
			llm.Bill{Model: "dear", Usage: llm.Usage{Output: 10, Reasoning: 40}}, 10 * 8, nil},
		{"a step for the whole request, though listed last",
			llm.Bill{Model: "stepped", Usage: llm.Usage{CacheRead: 100, Input: 100, Output: 1}}, 202, nil},
		{"the last step that is reached, though listed first",
			llm.Bill{Model: "stepped", Usage: llm.Usage{CacheRead: 1, Input: 300, Output: 1}}, 912, nil},
		{"negative numbers", llm.Bill{Model: "stepped", Usage: llm.Usage{Input: -5, Output: 3}}, 3, nil},
		{"usual labels", llm.Bill{Model: "stepped", Usage: llm.Usage{Input: 10}, Labels: map[string]string{
			"service_tier": "default", "geo": "not_available", "speed": "",
		}}, 10, nil},
		{"unknown value of a label", llm.Bill{
			Model: "stepped", Usage: llm.Usage{Input: 10}, Labels: map[string]string{"service_tier": "ultra"},
		}, 25, []string{"label service_tier:ultra"}},
		{"a label whose factors are below 1", llm.Bill{
			Model: "stepped", Usage: llm.Usage{Input: 10}, Labels: map[string]string{"speed": "turbo"},
		}, 10, []string{"label speed:turbo"}},
		{"unknown label", llm.Bill{
			Model: "plain", Usage: llm.Usage{Input: 10}, Labels: map[string]string{"moon": "full"},
		}, 5010, []string{"label moon:full"}},
		{"a unit that another model prices", llm.Bill{
			Model: "plain", Units: map[string]int64{"x_search": 3},
		}, 5000 + 12_000, []string{"unit x_search"}},
		{"a unit that nobody prices", llm.Bill{
			Model: "stepped", Units: map[string]int64{"page": 3},
		}, 105_000, []string{"unit page"}},
		{"milliseconds that nobody prices", llm.Bill{
			Model: "stepped", Units: map[string]int64{"video_ms": 20_000},
		}, 2000, []string{"unit video_ms"}},
		{"tokens of a kind that nobody prices", llm.Bill{
			Model: "stepped", Units: map[string]int64{"citation_tokens": 10},
		}, 800, []string{"unit citation_tokens"}},
		{"a unit that is not billed", llm.Bill{
			Model: "stepped", Units: map[string]int64{"web_fetch": 3},
		}, 0, nil},
		{"two counts of the same searches", llm.Bill{
			Model: "plain", Units: map[string]int64{"web_search": 3, "grounded_prompt": 1},
		}, 35_000, nil},
		{"searches alone, where prompts with searches are billed", llm.Bill{
			Model: "grounded", Units: map[string]int64{"web_search": 3},
		}, 35_000, nil},
		{"searches of maps, where prompts with them are billed", llm.Bill{
			Model: "grounded", Units: map[string]int64{"maps_query": 3},
		}, 25_000, nil},
		{"searches that another model prices by the prompt", llm.Bill{
			Model: "stepped", Units: map[string]int64{"maps_query": 3},
		}, 25_000, []string{"unit maps_prompt", "unit maps_query"}},
		{"a prompt with searches alone, where searches are billed", llm.Bill{
			Model: "plain", Units: map[string]int64{"grounded_prompt": 1},
		}, 15_000, nil},
		{"further models", llm.Bill{
			Model: "stepped", Usage: llm.Usage{Input: 1}, Others: []llm.ModelUsage{
				{Model: "plain", Usage: llm.Usage{Output: 3}}, {Model: "new", Usage: llm.Usage{Output: 2}},
			},
		}, 1 + 3 + 18, []string{"model new"}},
		{"unknown model", llm.Bill{
			Model: "new", Usage: llm.Usage{Input: 1, Output: 1}, Units: map[string]int64{"x_search": 1},
			Labels: map[string]string{"service_tier": "flex"},
		}, 40 + 4000 + 5000, []string{"model new", "label service_tier:flex"}},
		{"more than an int64", llm.Bill{
			Model: "plain", Units: map[string]int64{"web_search": math.MaxInt64},
		}, math.MaxInt64, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, unknown := priced(t, models, nil).Cost(c.bill)
			if got != c.want || !slices.Equal(unknown, c.unknown) {
				t.Errorf("%d, unknown %q; want %d, %q", got, unknown, c.want, c.unknown)
			}
		})
	}
}

func TestStatedCost(t *testing.T) {
	bill := llm.Bill{
		Model: "m", Usage: llm.Usage{Input: 10}, Stated: llm.Money{Known: true, Pico: 2_157_980_000},
	}
	models := map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each}}}
	trust := func(cfg *llm.Config) { cfg.StatedCost = llm.StatedCostTrust }
	for _, c := range []struct {
		name   string
		change func(*llm.Config)
		stated llm.Money
		want   int64
	}{
		{"ignored", nil, bill.Stated, 10},
		{"rounded up", trust, bill.Stated, 2158},
		{"whole", trust, llm.Money{Known: true, Pico: 3_000_000}, 3},
		{"nothing", trust, llm.Money{Known: true}, 0},
		{"not stated", trust, llm.Money{Pico: 5_000_000}, 10},
		{"negative", trust, llm.Money{Known: true, Pico: -5_000_000}, 10},
	} {
		bill.Stated = c.stated
		got, _ := priced(t, models, c.change).Cost(bill)
		gatetest.Equal(t, got, c.want, "%s", c.name)
	}
}

// Config.Tariff may set prices by the hour and by the labels. One that is not valid does not hold.
func TestTariffByTheHour(t *testing.T) {
	hour, night := 0, llm.Price{Input: 500_000, Output: 500_000}
	m := priced(t, map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each}}}, func(cfg *llm.Config) {
		cfg.Tariff = func(model string, labels map[string]string, at time.Time) (llm.Tariff, bool) {
			hour = at.Hour()
			switch {
			case model == "broken":
				return llm.Tariff{Price: llm.Price{Input: 5}}, true
			case labels["service_tier"] == "reserved":
				return free, true
			}
			return llm.Tariff{Price: night}, model == "m"
		}
	})
	usage := llm.Usage{Input: 10}
	for _, c := range []struct {
		bill    llm.Bill
		want    int64
		unknown string
	}{
		{llm.Bill{Model: "m", Usage: usage}, 5, ""},
		{llm.Bill{Model: "m", Usage: usage, Labels: map[string]string{"service_tier": "reserved"}}, 0,
			"label service_tier:reserved"},
		{llm.Bill{Model: "n", Usage: usage}, 10, "model n"},
		{llm.Bill{Model: "broken", Usage: usage}, 10, "tariff of broken model broken"},
	} {
		got, unknown := m.Cost(c.bill)
		if got != c.want || strings.Join(unknown, " ") != c.unknown && c.want > 0 {
			t.Errorf("%+v: %d, unknown %q; want %d, %q", c.bill, got, unknown, c.want, c.unknown)
		}
	}
	if now := time.Now().UTC().Hour(); hour != now && (hour+1)%24 != now {
		t.Errorf("asked for hour %d", hour)
	}
}

// drawTariff draws a tariff with small numbers, so that prices and steps meet.
func drawTariff(r *rapid.T, label string) llm.Tariff {
	amount := rapid.SampledFrom([]int64{llm.Free, 1, 2, 3, 999, 1_000_000, 7_500_000})
	absent := rapid.SampledFrom([]int64{0, 0, llm.Free, 1, 5, 999, 2_000_000})
	price := func(label string) llm.Price {
		return llm.Price{
			Input: amount.Draw(r, label+"input"), CacheRead: absent.Draw(r, label+"read"),
			CacheWrite: absent.Draw(r, label+"write"), CacheWriteLong: absent.Draw(r, label+"long"),
			AudioIn: absent.Draw(r, label+"audio"), ImageIn: absent.Draw(r, label+"image"),
			Output: amount.Draw(r, label+"output"), AudioOut: absent.Draw(r, label+"audio out"),
			ImageOut: absent.Draw(r, label+"image out"), Reasoning: absent.Draw(r, label+"reasoning"),
		}
	}
	t := llm.Tariff{Price: price(label), Units: map[string]int64{}, Factors: map[string]int64{}}
	for _, from := range []int64{5, 10, 20} {
		if rapid.Bool().Draw(r, label+"has step") {
			t.Steps = append(t.Steps, llm.Step{From: from, Price: price(label + "step ")})
		}
	}
	for _, unit := range caseUnits {
		if rapid.Bool().Draw(r, label+"has "+unit) {
			t.Units[unit] = amount.Draw(r, label+unit)
		}
	}
	for _, key := range []string{"service_tier:flex", "service_tier:priority", "service_tier:default", "geo:us"} {
		if rapid.Bool().Draw(r, label+"has prices of "+key) {
			t.Steps = append(t.Steps, llm.Step{Label: key, Price: price(label + key)})
			if rapid.Bool().Draw(r, label+"has steps of "+key) {
				t.Steps = append(t.Steps, llm.Step{Label: key, From: 7, Price: price(label + key + " step")})
			}
		} else if rapid.Bool().Draw(r, label+"has "+key) {
			t.Factors[key] = rapid.SampledFrom([]int64{llm.Free, 1, 500, 1000, 1100, 2500}).Draw(r, label+key)
		}
	}
	return t
}

var caseUnits = []string{
	"web_search", "grounded_prompt", "page", "audio_ms", "video_ms", "citation_tokens", "request", "web_fetch",
}

func drawBill(r *rapid.T, model string) llm.Bill {
	tokens := rapid.Int64Range(0, 12)
	usage := llm.Usage{
		Input: tokens.Draw(r, "input"), CacheRead: tokens.Draw(r, "read"), CacheWrite: tokens.Draw(r, "write"),
		CacheWriteLong: tokens.Draw(r, "long"), AudioIn: tokens.Draw(r, "audio"), ImageIn: tokens.Draw(r, "image"),
		Output: tokens.Draw(r, "output"), AudioOut: tokens.Draw(r, "audio out"),
		ImageOut: tokens.Draw(r, "image out"),
	}
	usage.Reasoning = rapid.Int64Range(0, usage.Output).Draw(r, "reasoning")
	b := llm.Bill{Model: model, Usage: usage, Units: map[string]int64{}, Labels: map[string]string{}}
	for _, unit := range caseUnits {
		if rapid.Bool().Draw(r, "uses "+unit) {
			b.Units[unit] = rapid.Int64Range(1, 3000).Draw(r, unit)
		}
	}
	for label, values := range map[string][]string{
		"service_tier": {"", "default", "flex", "priority", "ultra"}, "geo": {"", "us", "eu"},
	} {
		if value := rapid.SampledFrom(values).Draw(r, label); value != "" {
			b.Labels[label] = value
		}
	}
	return b
}

// No bill costs more by any model than by one that nobody knows.
func TestUnknownModelIsTheDearest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		models := make(map[string]llm.Model)
		for _, name := range []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(r, "models")] {
			models[name] = llm.Model{Tariff: drawTariff(r, name+" ")}
		}
		m := priced(t, models, nil)
		bill := drawBill(r, "unknown")
		bound, unknown := m.Cost(bill)
		if !slices.Contains(unknown, "model unknown") {
			r.Fatalf("unknown %q", unknown)
		}
		for name := range models {
			bill.Model = name
			if got, _ := m.Cost(bill); got > bound {
				r.Fatalf("%s costs %d, an unknown model %d", name, got, bound)
			}
		}
	})
}

// A tariff that prices all of a bill charges what fractions say, rounded up.
func TestCostIsExact(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tariff := drawTariff(r, "")
		bill := drawBill(r, "m")
		for unit := range bill.Units {
			if _, ok := tariff.Units[unit]; !ok || unit == "request" {
				delete(bill.Units, unit)
			}
		}
		for label, value := range bill.Labels {
			if _, ok := tariff.Factors[label+":"+value]; !ok && !hasPrices(tariff, label+":"+value) {
				delete(bill.Labels, label)
			}
		}
		got, unknown := priced(t, map[string]llm.Model{"m": {Tariff: tariff}}, nil).Cost(bill)
		if want := fractions(tariff, bill); got != want || len(unknown) > 0 {
			r.Fatalf("%d, want %d; unknown %q", got, want, unknown)
		}
	})
}

func hasPrices(t llm.Tariff, label string) bool {
	return slices.ContainsFunc(t.Steps, func(s llm.Step) bool { return s.Label == label })
}

// fractions prices a bill as the specification says, of a tariff that prices all of it.
func fractions(t llm.Tariff, b llm.Bill) int64 {
	u := b.Usage
	prompt := u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteLong + u.AudioIn + u.ImageIn
	at := func(label string) llm.Price {
		price := t.Price
		for _, s := range t.Steps { // in order
			if s.Label == label && s.From <= prompt {
				price = s.Price
			}
		}
		return price
	}
	var tables []llm.Price // of the labels that have some
	var factors []int64
	for label, value := range b.Labels {
		if key := label + ":" + value; hasPrices(t, key) {
			tables = append(tables, at(key))
		} else {
			factors = append(factors, t.Factors[key])
		}
	}
	if tables == nil {
		tables = []llm.Price{at("")}
	}
	sum := new(big.Rat)
	add := func(n int64, prices ...func(llm.Price) int64) {
		highest := new(big.Rat)
		for _, table := range tables {
			for _, of := range prices {
				if p := of(table); p != 0 {
					if r := big.NewRat(max(p, 0), 1_000_000); r.Cmp(highest) > 0 {
						highest = r
					}
					break
				}
			}
		}
		sum.Add(sum, highest.Mul(highest, big.NewRat(n, 1)))
	}
	input := func(p llm.Price) int64 { return p.Input }
	output := func(p llm.Price) int64 { return p.Output }
	write := func(p llm.Price) int64 { return p.CacheWrite }
	add(u.Input, input)
	add(u.CacheRead, func(p llm.Price) int64 { return p.CacheRead }, input)
	add(u.CacheWrite, write, input)
	add(u.CacheWriteLong, func(p llm.Price) int64 { return p.CacheWriteLong }, write, input)
	add(u.AudioIn, func(p llm.Price) int64 { return p.AudioIn }, input)
	add(u.ImageIn, func(p llm.Price) int64 { return p.ImageIn }, input)
	add(u.Output-u.Reasoning, output)
	add(u.Reasoning, func(p llm.Price) int64 { return p.Reasoning }, output)
	add(u.AudioOut, func(p llm.Price) int64 { return p.AudioOut }, output)
	add(u.ImageOut, func(p llm.Price) int64 { return p.ImageOut }, output)
	for _, f := range factors {
		sum.Mul(sum, big.NewRat(max(0, f), 1000))
	}
	units := maps.Clone(b.Units)
	for name, other := range map[string]string{"web_search": "grounded_prompt", "grounded_prompt": "web_search"} {
		if units[name] > 0 && units[other] == 0 && t.Units[name] == llm.Free {
			units[other] = 1 // the same searches by another count
		}
	}
	for unit, n := range units {
		sum.Add(sum, new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(max(0, t.Units[unit]), 1000)))
	}
	if request := t.Units["request"]; request > 0 && (u != llm.Usage{} || len(b.Units) > 0) {
		sum.Add(sum, big.NewRat(request, 1000))
	}
	ceil := new(big.Int).Add(sum.Num(), new(big.Int).Sub(sum.Denom(), big.NewInt(1)))
	return ceil.Div(ceil, sum.Denom()).Int64()
}

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
	gatetest.Need(t, len(files), 3, "files")
	for file, c := range files {
		t.Run(file, func(t *testing.T) {
			p := load(t, llm.PricesConfig{Paths: []string{priceFile(file)}})
			for name, want := range c.Models {
				got, ok := p.Model(name)
				gatetest.Equal(t, ok, want != nil, "%s: known", name)
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
	files := []string{priceFile("genai.json"), priceFile("litellm.json"), priceFile("modelsdev.json")}
	for _, c := range []struct {
		providers string
		name      string
		want      int64
	}{
		{"", "large-2-mini", 3_000_000}, {"", "LARGE-2", 3_000_000}, {"", "lar-ge-latest", 3_000_000},
		{"", "ge-latest", 0}, {"", "lg7", 3_000_000}, {"", "lg77", 0}, {"", "reached-fast", 1_250_000},
		{"acme globex", "large", 3_000_000}, {"globex acme", "large", 4_000_000},
		{"globex", "large-2", 0}, {"globex", "acme/large", 0}, {"", "", 0},
		// The only name of acme's model is also one of globex's.
		{"", "shared", 1_000_000}, {"acme globex", "shared", 1_000_000}, {"globex acme", "shared", 2_000_000},
		{"globex acme", "globex/shared", 2_000_000}, {"globex", "shared", 2_000_000},
		// A router uses the full name of acme's model.
		{"", "acme/old", 1_000_000}, {"acme router", "acme/old", 1_000_000}, {"router acme", "acme/old", 6_000_000},
	} {
		var providers []string
		if c.providers != "" {
			providers = strings.Fields(c.providers)
		}
		p := load(t, llm.PricesConfig{Paths: files, Providers: providers})
		for range 2 { // the second answer is remembered
			got, _ := p.Model(c.name)
			gatetest.Equal(t, got.Tariff.Price.Input, c.want, "%s of %q", c.name, c.providers)
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
		gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := llm.LoadPrices(llm.PricesConfig{Paths: []string{path}}); err == nil ||
			!strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "llm: ") {
			t.Errorf("%.20q: %v, want %q", text, err, name)
		}
	}
	for _, cfg := range []llm.PricesConfig{{}, {Paths: []string{filepath.Join(dir, "none")}}} {
		gatetest.Fails(t, gatetest.Err(llm.LoadPrices(cfg)), "%+v is accepted", cfg)
	}
}

// A Meter charges by the file that holds now. A bad file changes nothing and is told once.
func TestPricesReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.json")
	write := func(input string) {
		text := `{"m":{"litellm_provider":"acme","input_cost_per_token":` + input + `,"output_cost_per_token":1e-06}}`
		gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
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
			gatetest.Equal(t, len(told), events, "events")
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
		cost(30, 1)
		gatetest.NoError(t, os.Remove(path))
		cost(30, 1)
		cost(30, 0)
	})
}

// Close waits for a look that makes other prices hold.
func TestPricesCloseWaitsForLook(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "prices.json")
	write := func(text string) { gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
	text := `{"m":{"litellm_provider":"acme","input_cost_per_token":1e-06,"output_cost_per_token":1e-06}}`
	write(text)
	looks := make(chan struct{})
	var over atomic.Bool
	p := core.Must(llm.LoadPrices(llm.PricesConfig{Paths: []string{path}, Observe: func(ctx context.Context, _ core.Event) {
		close(looks)
		<-ctx.Done() // Close has begun
		for range 1000 {
			runtime.Gosched()
		}
		over.Store(true)
	}}))
	write(text + "\n")
	<-looks
	p.Close()
	gatetest.Equal(t, over.Load(), true, "the look is over")
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
		gatetest.Equal(t, r.post(chatPath, `{"model":"unpriced"}`).StatusCode, 404, "status")
		read(t, r.post(chatPath, `{"model":"`+model+`"}`))
		report := r.want(llm.OutcomeReported, llm.Usage{Input: 1, Output: 1}, want[0])
		if report.Cost != want[0] || report.Estimate.Output != want[1] {
			t.Errorf("%s: %+v", model, report)
		}
	}
}

// Meters that share prices share the steps of their tariffs, which none of them may write.
func TestMetersSharePrices(t *testing.T) {
	p := load(t, llm.PricesConfig{Paths: []string{priceFile("litellm.json")}})
	var ready, all sync.WaitGroup
	ready.Add(16)
	for range 16 {
		all.Go(func() {
			priced(t, nil, func(cfg *llm.Config) {
				cfg.Prices = p
				ready.Done()
				ready.Wait()
			})
		})
	}
	all.Wait()
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
		gatetest.Equal(t, estimate(c.model), c.want, "%s", c.model)
	}
}
