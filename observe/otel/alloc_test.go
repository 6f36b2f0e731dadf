//go:build !race

// Not with the race detector: it makes sync.Pool drop items at random.

package otelgate_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/eventtest"
)

func TestDecisionAllocatesNothing(t *testing.T) {
	for name, cfg := range map[string]core.Config{"off": {}, "on": {Observe: newSDK().signals(t).Observe}} {
		g, charge := eventtest.Gate(t, cfg), eventtest.Charge(t)
		ctx := t.Context()
		if n := testing.AllocsPerRun(1000, func() { _, _ = g.Decide(ctx, charge) }); n != 0 {
			t.Errorf("%s: %v allocations a decision", name, n)
		}
	}
}
