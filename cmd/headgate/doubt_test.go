package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
)

// A limit that the program gives a key itself is not known, so why never says that it passes.
func TestWhyDoesNotKnowLimitsOfCharges(t *testing.T) {
	eachTopology(t, func(t *testing.T, client redis.UniversalClient, flags []string) {
		a := newApplication(t, client)
		own := core.Calendar{Limit: 3, Every: core.PeriodMonth, In: time.UTC}
		charge := core.Charge{Policy: core.Must(core.NewPolicy(core.PolicyConfig{
			Name: "month", Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC},
		})), Key: a.key, Cost: 3, Limit: own}
		if d, err := a.gate.Decide(t.Context(), charge); err != nil || !d.Allowed {
			t.Fatal(d, err)
		}
		a.states(charge.Policy)
		r := headgate(t, append([]string{"why", "acme/user-1"}, flags...)...)
		if r.code != exitUnknown || !strings.Contains(r.out, "is not known") ||
			strings.Contains(r.out, "month at acme/user-1 passes") || !strings.Contains(r.out, "calendar, 3 used") {
			t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
		}
		// A file of plans that has it, makes it known.
		file := write(t, "plans.yaml",
			"default: free\nplans: {free: {limits: {month: {limit: 3, calendar: month, in: UTC}}}}\n")
		r = headgate(t, append([]string{"why", "acme/user-1", "--policies", file}, flags...)...)
		if r.code != exitNo || !strings.Contains(r.out, "3 of 3") {
			t.Errorf("with a file: exit code %d: %s%s", r.code, r.out, r.err)
		}
	})
}

// What a process held that died has come back when its hold is over.
func TestHoldsThatAreOverDoNotCount(t *testing.T) {
	eachTopology(t, func(t *testing.T, client redis.UniversalClient, flags []string) {
		for name, limit := range map[string]core.Algorithm{
			"month":   core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC},
			"window":  core.FixedWindow{Limit: 10, Window: 24 * time.Hour},
			"credits": core.TokenBucket{Burst: 10},
		} {
			dead := newApplication(t, client)
			dead.key = core.Must(core.NewKey("acme", name))
			p := core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit, Hold: 2 * time.Second}))
			if _, d, err := dead.gate.Charge(t.Context(), core.Charge{Policy: p, Key: dead.key, Cost: 10}); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			dead.states(p)
			if err := dead.gate.Close(t.Context()); err != nil { // nobody renews the hold
				t.Fatal(err)
			}
			flags := append([]string{"acme/" + name}, flags...)
			used := func() *int64 { // show writes nothing, so it looks first
				v, r := headgateJSON[struct{ Limits []struct{ Used *int64 } }](t, append([]string{"show"}, flags...)...)
				if len(v.Limits) != 1 {
					t.Fatalf("%s: exit code %d: %s%s", name, r.code, r.out, r.err)
				}
				return v.Limits[0].Used
			}
			patience := time.Now().Add(30 * time.Second)
			for u := used(); u == nil || *u != 0; u = used() {
				if time.Now().After(patience) || u != nil && *u != 10 {
					t.Fatalf("%s: show says that %v are used", name, u)
				}
			}
			if r := headgate(t, append([]string{"why"}, flags...)...); r.code != exitOK || !strings.Contains(r.out, "0 of 10") {
				t.Errorf("%s: why: exit code %d: %s%s", name, r.code, r.out, r.err)
			}
		}
	})
}
