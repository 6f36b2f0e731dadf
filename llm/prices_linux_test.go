package llm_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

// A file of prices whose read hangs does not keep Close.
func TestPricesOfHangingFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "prices.json")
	text := `{"m": {"litellm_provider": "p", "mode": "chat", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}}`
	gatetest.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	prices := gatetest.Must(llm.LoadPrices(llm.PricesConfig{Paths: []string{path}}))(t)
	hanging := gatetest.Hang(t, path)
	hanging.Write("\n")
	hanging.AwaitOpen()
	hanging.Returns("Close", prices.Close)
	if _, ok := prices.Model("m"); !ok {
		t.Error("the prices are gone")
	}
}
