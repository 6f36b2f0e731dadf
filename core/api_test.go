package core_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// A charge's Limit replaces that of its policy.
func TestChargeHasItsOwnLimit(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		p := limited(t, "p", frozen(3))
		count := func(key string, own core.Algorithm) (n int) {
			for decide(t, g, core.Charge{Policy: p, Key: newKey(t, key), Cost: 1, Limit: own}).Allowed {
				n++
			}
			return n
		}
		if n := count("other", nil); n != 3 {
			t.Errorf("the policy's limit admits %d", n)
		}
		if n := count("gold", frozen(5)); n != 5 {
			t.Errorf("the charge's limit admits %d", n)
		}
		if n := count("gold", frozen(7)); n != 2 {
			t.Errorf("the charge's limit of 7 admits %d after 5", n)
		}
		if n := count("free", core.SlidingLog{Windows: []core.Window{{Limit: 4, Width: time.Hour}}}); n != 4 {
			t.Errorf("a charge's log admits %d", n)
		}
	})
}

func TestSpendUpToSpendsCostsSeveralTimes(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		key := newKey(t, "k")
		requests := core.Charge{Policy: limited(t, "requests", frozen(10)), Key: key, Cost: 1}
		tokens := core.Charge{Policy: limited(t, "tokens", frozen(70)), Key: key, Cost: 20}
		n, d, err := g.SpendUpTo(t.Context(), 8, requests, tokens)
		if n != 3 || err != nil || !d.Allowed || d.At(0).Used != 3 || d.At(1).Used != 60 {
			t.Errorf("granted %d: %s, %v", n, show(d), err)
		}
		if n, d, err := g.SpendUpTo(t.Context(), 0, requests); n != 0 || err != nil || !d.Allowed {
			t.Errorf("0 times: granted %d: %s, %v", n, show(d), err)
		}
	})
}

func TestResultsAreInOrderOfCharges(t *testing.T) {
	g := memoryGate(t, core.Config{})
	var charges []core.Charge
	for i := range 6 {
		charges = append(charges, core.Charge{Policy: limited(t, fmt.Sprint("p", i), frozen(1)), Key: newKey(t, "k"), Cost: 1})
	}
	d := decide(t, g, charges...)
	var names []string
	for i, r := range d.Results() {
		if r != d.At(i) {
			t.Errorf("result %d: %+v", i, r)
		}
		names = append(names, r.Policy.Name())
		if i == 4 {
			break
		}
	}
	if got := strings.Join(names, " "); got != "p0 p1 p2 p3 p4" {
		t.Errorf("results of %q", got)
	}
}

func TestEnumerationsHaveNames(t *testing.T) {
	gatetest.Names(t, core.FailLocal, core.FailOpen, core.FailClosed, core.FailureMode(9))
	gatetest.Names(t, core.TopologyAuto, core.TopologyOneServer, core.TopologyCluster, core.Topology(9))
	gatetest.Names(t, core.PeriodMinute, core.PeriodHour, core.PeriodDay, core.PeriodWeek, core.PeriodMonth, core.PeriodYear, core.Period(9))
	gatetest.Names(t, core.UnitRequests, core.UnitTokens, core.UnitInputTokens, core.UnitOutputTokens, core.UnitMicroDollars,
		core.UnitContentBytes, core.Unit(9))
	gatetest.Names(t, core.SourceNone, core.SourceRedis, core.SourceMemory, core.SourceOpen, core.SourceLocal, core.SourceClosed,
		core.SourceCache)
	gatetest.Names(t, core.OpDecide, core.OpScriptMissing, core.Op(99))
}

func TestMustPanicsWithConstructorsError(t *testing.T) {
	if p := core.Must(core.NewPolicy(core.PolicyConfig{Name: "p", Algorithm: frozen(1)})); p.Name() != "p" {
		t.Errorf("policy %q", p.Name())
	}
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "PolicyConfig.Name") {
			t.Errorf("panic %v", err)
		}
	}()
	core.Must(core.NewPolicy(core.PolicyConfig{Algorithm: frozen(1)}))
}

// Decide returns the fault of a Charge.Limit, wherever the charge stands, and spends nothing.
func TestChargesLimitIsValidated(t *testing.T) {
	t.Parallel()
	window := core.Window{Limit: 1, Width: time.Hour}
	limits := map[string]core.Algorithm{
		"too many windows":       core.SlidingLog{Windows: make([]core.Window, 9)},
		"no windows":             core.SlidingLog{},
		"a window without width": core.SlidingLog{Windows: []core.Window{window, {}}},
		"negative":               core.TokenBucket{Rate: -1},
		"pointer":                &core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1},
		"nil pointer":            (*core.TokenBucket)(nil),
	}
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		good := core.Charge{Policy: limited(t, "good", frozen(1)), Key: newKey(t, "k"), Cost: 1}
		bad := core.Charge{Policy: limited(t, "bad", frozen(1)), Key: good.Key, Cost: 1}
		bad.Limit = core.SlidingLog{Windows: []core.Window{window}}
		decide(t, g, bad) // a log that begins like an invalid one is known
		for name, own := range limits {
			bad.Limit = own
			for _, charges := range [][]core.Charge{{bad}, {bad, good}, {good, bad}} {
				if d, err := g.Decide(t.Context(), charges...); err == nil || d.Allowed || d.Len() > 0 {
					t.Errorf("%s: %v, %s", name, err, show(d))
				}
			}
		}
		if d := peek(t, g, good); !d.Allowed {
			t.Error("something was spent")
		}
	})
}
