package pricefile_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm/internal/pricefile"
)

// FuzzParse looks for texts that are no price files and are read as such. Every model that is read
// has prices of tokens that are positive, or of nothing.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "prices", "*"))
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text := gatetest.Must(os.ReadFile(file))(f)
		f.Add(text)
	}
	for _, text := range []string{
		`{"m":{"litellm_provider":"x","input_cost_per_token":1e-60,"output_cost_per_token":1e60}}`,
		`{"m":{"litellm_provider":"x","input_cost_per_token":-1,"output_cost_per_token":"2e-06"}}`,
		`{"m":{"litellm_provider":"x","tiered_pricing":[{"range":[],"input_cost_per_token":1}]}}`,
		`[{"id":"p","models":[{"id":"m","match":{"or":[{"and":[]}]},"prices":[]}]}]`,
		`{"p":{"models":{"m":{"cost":{"input":1,"tiers":[{"tier":{"size":-1}}]}}}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := pricefile.Parse(text, time.Unix(1_800_000_000, 0))
		if err != nil {
			return
		}
		for _, e := range file.Entries {
			prices := []pricefile.Price{e.Model.Price}
			for _, s := range e.Model.Steps {
				if s.From < 0 || s.From == 0 && s.Label == "" {
					t.Errorf("%s has a step from %d", e.Name, s.From)
				}
				prices = append(prices, s.Price)
			}
			for _, p := range prices {
				if p[pricefile.Input] == 0 || p[pricefile.Output] == 0 || slices.Min(p[:]) < -1 {
					t.Errorf("%s costs %+v", e.Name, p)
				}
			}
			for key, n := range e.Model.Factors {
				if n == 0 || n < -1 {
					t.Errorf("%s of %s is %d", key, e.Name, n)
				}
			}
			for unit, n := range e.Model.Units {
				if n == 0 || n < -1 {
					t.Errorf("%s of %s is %d", unit, e.Name, n)
				}
			}
			if e.Match != nil {
				e.Match("m")
			}
		}
	})
}
