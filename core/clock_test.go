package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// After a step back, the limit of a bucket that decides first says what is left of the level. The
// decisions of others change nothing of that.
func TestLimitsAgreeAfterClockBack(t *testing.T) {
	t.Parallel()
	families := map[string][]core.Algorithm{
		"whole":      {core.TokenBucket{Rate: 4, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 2, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 2, Per: time.Second, Burst: 6}},
		"fractional": {core.TokenBucket{Rate: 7, Per: time.Second, Burst: 3}, core.TokenBucket{Rate: 3, Per: time.Second, Burst: 4}, core.TokenBucket{Rate: 2, Per: 3 * time.Second, Burst: 1}},
		"leaky":      {core.LeakyBucket{Rate: 7, Per: time.Second, Capacity: 3}, core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 3}, core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 6}},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for name, limits := range families {
			policy := newPolicy(t, core.PolicyConfig{Name: name, Algorithm: changing(limits...)})
			for _, back := range []time.Duration{time.Microsecond, 300 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, time.Hour} {
				for order := range 27 {
					at := [3]int{order % 3, order / 3 % 3, order / 9}
					charge := core.Charge{Policy: policy, Key: newKey(t, fmt.Sprint(name, back, order)), Cost: 100, Clamp: true}
					full := func(limit int) string {
						charge.Limit = limits[limit]
						return show(decide(t, g, charge))
					}
					full(at[0])
					c.Advance(-back)
					first := full(at[1])
					full(at[2])
					if again := full(at[1]); again != first {
						t.Errorf("%s, %v back, limits %v: %s\nthen %s", name, back, at, first, again)
					}
				}
			}
		}
	})
}

// At the start of 1970, where a zero ManualClock stands, every algorithm counts and refunds.
func TestAlgorithmsAtZeroTime(t *testing.T) {
	for _, l := range append(limitsOfTen, []namedLimit{{"window of one bucket", core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 1}}}...) {
		t.Run(l.name, func(t *testing.T) {
			g := memoryGate(t, core.Config{Clock: new(core.ManualClock).Now})
			policy, key := limited(t, "p", l.algorithm), newKey(t, "k")
			held, d := reserve(t, g, 0, core.Charge{Policy: policy, Key: key, Cost: 4})
			if r := d.At(0); r.Used != 4 || r.Remaining != 6 {
				t.Error(show(d))
			}
			cancel(t, held)
			wantUsed(t, g, policy, key, 0)
		})
	}
}
