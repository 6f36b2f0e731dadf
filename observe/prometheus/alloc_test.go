//go:build !race

// Not with the race detector: it makes sync.Pool drop items at random.

package promgate_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/eventtest"
	promgate "github.com/headgate/headgate/observe/prometheus"
)

func TestDecisionAllocatesNothing(t *testing.T) {
	m, _ := newMetrics(t, promgate.Config{})
	for name, cfg := range map[string]core.Config{"off": {}, "on": {Observe: m.Observe}} {
		g, charge := eventtest.Gate(t, cfg), eventtest.Charge(t)
		ctx := t.Context()
		if n := testing.AllocsPerRun(1000, func() { _, _ = g.Decide(ctx, charge) }); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}
}
