package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
)

// A key whose limit changes keeps, loses or clips its state as the algorithm's documentation says.
func TestLimitChangeVectors(t *testing.T) {
	t.Parallel()
	steps := stepsOf(t, "changes.txt")
	gatetest.Equal(t, len(limitChanges), len(steps), "vectors")
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for i, v := range limitChanges {
			t.Run(v.name, func(t *testing.T) { v.play(t, g, c, newKey(t, fmt.Sprintf("v%d", i)), steps[v.name]) })
		}
	})
}

func loadZone(name string) *time.Location {
	in, err := time.LoadLocation(name)
	if err != nil {
		panic(err)
	}
	return in
}

var limitChanges = []vector{
	{name: "token bucket", limits: []core.Algorithm{
		core.TokenBucket{Rate: 2, Per: time.Second, Burst: 4},
		core.TokenBucket{Rate: 2, Per: time.Second, Burst: 10},
		core.TokenBucket{Rate: 1, Per: time.Second, Burst: 4},
		core.TokenBucket{Rate: 4, Per: time.Second, Burst: 4},
		core.TokenBucket{Rate: 6, Per: 2 * time.Second, Burst: 2},
	}},
	{name: "token bucket with fractional microseconds", limits: []core.Algorithm{
		core.TokenBucket{Rate: 2, Per: time.Second, Burst: 4},
		core.TokenBucket{Rate: 6, Per: 2 * time.Second, Burst: 2},
	}},
	{name: "leaky bucket",
		limits: []core.Algorithm{core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 4}, core.LeakyBucket{Rate: 4, Per: time.Second, Capacity: 12}, core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 1}}},
	{name: "fixed window", limits: []core.Algorithm{
		core.FixedWindow{Limit: 10, Window: time.Minute},
		core.FixedWindow{Limit: 20, Window: time.Minute},
		core.FixedWindow{Limit: 3, Window: time.Minute},
		core.FixedWindow{Limit: 10, Window: time.Hour},
		core.FixedWindow{Limit: 11, Window: time.Minute},
		core.FixedWindow{Limit: 10, Window: 10 * time.Second},
		core.FixedWindow{Limit: 10, Window: time.Hour, FromFirst: true},
	}},
	{name: "two counters", limits: []core.Algorithm{
		core.SlidingWindow{Limit: 10, Window: time.Minute},
		core.SlidingWindow{Limit: 20, Window: time.Minute},
		core.SlidingWindow{Limit: 3, Window: time.Minute},
		core.SlidingWindow{Limit: 10, Window: 10 * time.Second},
		core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6},
	}},
	{name: "buckets", limits: []core.Algorithm{
		core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6},
		core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 60},
		core.SlidingWindow{Limit: 20, Window: 2 * time.Minute, Buckets: 6},
		core.SlidingWindow{Limit: 3, Window: time.Minute, Buckets: 6},
		core.SlidingWindow{Limit: 10, Window: 5 * time.Second, Buckets: 5},
	}},
	{name: "log", limits: []core.Algorithm{
		core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}},
		core.SlidingLog{Windows: []core.Window{{Limit: 20, Width: time.Minute}}},
		core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Minute}}},
		core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}}},
		core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: time.Hour}, {Limit: 2, Width: time.Second}}},
	}},
	{name: "calendar", limits: []core.Algorithm{
		core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC},
		core.Calendar{Limit: 20, Every: core.PeriodDay, In: time.UTC},
		core.Calendar{Limit: 3, Every: core.PeriodDay, In: time.UTC},
		core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC},
		core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe},
		core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC, Anchor: noon.Add(6 * time.Hour)},
		core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC, Anchor: noon.AddDate(-1, 0, 17).Add(6 * time.Hour)},
		core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC, Anchor: noon.Add(12 * time.Hour)},
	}},
	{name: "debt of another window", limits: []core.Algorithm{
		core.FixedWindow{Limit: 30, Window: time.Second}, core.FixedWindow{Limit: 30, Window: 2 * time.Second},
	}},
	{name: "widened window",
		limits: []core.Algorithm{core.FixedWindow{Limit: 5, Window: 500 * time.Millisecond}, core.FixedWindow{Limit: 5, Window: time.Hour}}},
	{name: "narrower token bucket",
		limits: []core.Algorithm{core.TokenBucket{Rate: 70, Per: time.Minute, Burst: 100}, core.TokenBucket{Rate: 3, Per: time.Second, Burst: 5}}},
	{name: "algorithm", limits: []core.Algorithm{
		core.PerMinute(10), core.LeakyBucket{Rate: 10, Per: time.Minute, Capacity: 10}, core.FixedWindow{Limit: 10, Window: time.Minute},
		core.SlidingWindow{Limit: 10, Window: time.Minute}, core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6},
		core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}, core.Calendar{Limit: 10, Every: core.PeriodMinute, In: time.UTC},
		core.Unlimited{}, core.DenyAll{}, frozen(10),
	}},
}
