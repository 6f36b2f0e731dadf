package gatetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// HeldFor returns a policy of 10 units that never come back by themselves, with that Hold.
func HeldFor(t testing.TB, hold time.Duration) *core.Policy {
	t.Helper()
	return Policy(t, core.PolicyConfig{Name: "budget", Algorithm: Frozen(10), Hold: hold})
}

// Used returns how many units of a key are in use.
func Used(t testing.TB, g *core.Gate, p *core.Policy, key core.Key) int64 {
	t.Helper()
	d := Peek(t, g, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
	return d.At(0).Used
}

// WantUsed reports other units of a key in use than those.
func WantUsed(t testing.TB, g *core.Gate, p *core.Policy, key core.Key, want int64) {
	t.Helper()
	if n := Used(t, g, p, key); n != want {
		t.Errorf("%d units of %s are in use, want %d", n, p.Name(), want)
	}
}

// Settle settles a reservation for what was used of each of its charges.
func Settle(t testing.TB, r *core.Reservation, actual ...int64) {
	t.Helper()
	NoError(t, r.Settle(t.Context(), actual...))
}

// IsOp reports whether an event is of an operation.
func IsOp(e core.Event, op core.Op) bool { return e.EventName() == op.String() }

// Do sends a command.
func Do(t testing.TB, client *redis.Client, args ...any) {
	t.Helper()
	NoError(t, client.Do(t.Context(), args...).Err())
}

// Names reports values whose names are empty or those of others.
func Names[S fmt.Stringer](t testing.TB, values ...S) {
	t.Helper()
	seen := make(map[string]bool)
	for _, v := range values {
		s := v.String()
		if s == "" || seen[s] {
			t.Errorf("%T %#v has the name %q", v, v, s)
		}
		seen[s] = true
	}
}
