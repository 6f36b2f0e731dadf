// Package eventtest has an event of each kind, for tests of what observes them.
package eventtest

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
	"github.com/headgate/headgate/plans"
)

// ErrFault is the error of the events that have one.
var ErrFault = errors.New("fault")

// Tenant is the key of all events that have one.
const Tenant = "acme"

// must returns v, and ends the test on an error.
func must[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Gate returns a Gate in memory, which the test closes.
func Gate(t testing.TB, cfg core.Config) *core.Gate {
	t.Helper()
	g, err := core.NewMemory(cfg)
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	return must(t, g, err)
}

// Policy returns a policy that admits n requests a day.
func Policy(t testing.TB, name string, n int64) *core.Policy {
	t.Helper()
	p, err := core.NewPolicy(core.PolicyConfig{
		Name: name, Algorithm: core.TokenBucket{Rate: n, Per: 24 * time.Hour, Burst: n},
	})
	return must(t, p, err)
}

// Key returns the key of Tenant.
func Key(t testing.TB) core.Key {
	t.Helper()
	k, err := core.NewKey(Tenant)
	return must(t, k, err)
}

// All returns an event of each kind, that is of each type, operation and change.
func All(t testing.TB) (all []core.Event) {
	t.Helper()
	gate, policy, key := Gate(t, core.Config{}), Policy(t, "api", 10), Key(t)
	for op := core.OpDecide; op <= core.OpReserve; op++ {
		all = append(all, decision(t, gate, op, core.Charge{Policy: policy, Key: key}))
	}
	for op := core.OpSettle; op <= core.OpRefundFailed; op++ {
		all = append(all, &core.ReservationEvent{Op: op, Err: ErrFault, Took: time.Millisecond})
	}
	for op := core.OpAdjust; op <= core.OpReset; op++ {
		all = append(all, &core.KeyEvent{Op: op, Policy: policy, Key: key, Took: time.Millisecond})
	}
	all = append(all, &core.ThresholdEvent{Policy: policy, Key: key, Percent: 80, Used: 8, Limit: 10})
	for op := core.OpScriptMissing; op <= core.OpOverload; op++ {
		all = append(all, &core.ServerEvent{Op: op, Node: "10.0.0.1:6379", Err: ErrFault})
	}
	return append(append(all, leases(t, gate)...), above(t, gate, policy, key)...)
}

// decision returns the event of an operation, which it runs.
func decision(t testing.TB, gate *core.Gate, op core.Op, c core.Charge) core.Event {
	t.Helper()
	var d core.Decision
	var err error
	switch op {
	case core.OpReserve:
		_, d, err = gate.Reserve(t.Context(), 0, c)
	case core.OpPeek:
		d, err = gate.Peek(t.Context(), c)
	default:
		d, err = gate.Decide(t.Context(), c)
	}
	return &core.DecisionEvent{
		Op: op, Decision: must(t, d, err), Charges: []core.Charge{c}, Took: time.Millisecond,
	}
}

// leases returns the events of slots, of filters and of plans.
func leases(t testing.TB, gate *core.Gate) (all []core.Event) {
	t.Helper()
	streams, err := semaphore.New(gate, semaphore.Config{Name: "streams"})
	all = append(all, &semaphore.AcquireEvent{
		Semaphore: must(t, streams, err), Source: core.SourceMemory, Waited: true, Took: time.Second,
	})
	for change := semaphore.LeaseReleased; change <= semaphore.LeaseEvicted; change++ {
		all = append(all, &semaphore.LeaseEvent{
			Kind: change, Semaphore: streams, Held: time.Second, Took: time.Millisecond,
		})
	}
	seen, err := bloom.New(gate, bloom.Config{Name: "seen", Items: 100, FalsePositives: 0.01})
	all = append(all, &bloom.Event{Filter: must(t, seen, err), Took: time.Millisecond})
	for op := plans.OpReload; op <= plans.OpOverride; op++ {
		all = append(all, &plans.Event{Op: op, Tenant: Tenant, Err: ErrFault})
	}
	return all
}

// above returns the events of the adapters.
func above(t testing.TB, gate *core.Gate, policy *core.Policy, key core.Key) (all []core.Event) {
	t.Helper()
	guard, err := nethttp.NewGuard(nethttp.Config{
		Gate: gate, Rules: []nethttp.Rule{{Policy: policy, Key: keyfunc.RemoteIP()}},
		Observe: func(_ context.Context, e core.Event) {
			one := *e.(*nethttp.AdmissionEvent)
			all = append(all, &one)
		},
	})
	must(t, guard, err).Admit(httptest.NewRequest("GET", "/", nil))
	for op := admin.OpReset; op <= admin.OpEndOverride; op++ {
		all = append(all, &admin.Event{Operator: "kim", Op: op, Policy: policy, Key: key})
	}
	return append(all,
		&llm.ResponseEvent{
			Request: llm.Request{Model: "small"}, Outcome: llm.OutcomeReported,
			Estimate: llm.Usage{Input: 100, Output: 50},
			Bill: llm.Bill{
				Model: "small", Usage: llm.Usage{Input: 90, Output: 40, Reasoning: 30},
				Others: []llm.ModelUsage{{Model: "advisor", Usage: llm.Usage{Output: 5}}},
			},
			Cost: 2_500_000, Unknown: []string{"unit web_search"}, Indebted: true, Drained: true,
		},
		&llm.PricesEvent{Err: ErrFault},
		&outbound.RequestEvent{
			Request: httptest.NewRequest("GET", "/", nil), Status: 200, Sent: 2, Waited: time.Second,
		},
		&outbound.WaitEvent{Rule: "cooldown", For: time.Second},
		&outbound.CooldownEvent{Key: key, Status: 429, For: time.Minute},
		&outbound.LowerEvent{Policy: policy, Key: key, Remaining: 1, Spent: 2, Err: ErrFault},
	)
}

// Charge returns a charge of a policy that has room for a billion of them.
func Charge(t testing.TB) core.Charge {
	t.Helper()
	p, err := core.NewPolicy(core.PolicyConfig{Name: "api", Algorithm: core.PerSecond(1_000_000_000)})
	return core.Charge{Policy: must(t, p, err), Key: Key(t)}
}
