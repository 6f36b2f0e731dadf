package core_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
)

// A key whose limit changes keeps, loses or clips its state as the algorithm's documentation says.
func TestLimitChangeVectors(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for i, v := range limitChanges {
			t.Run(v.name, func(t *testing.T) { v.play(t, g, c, newKey(t, fmt.Sprintf("v%d", i))) })
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
	{
		name: "token bucket",
		limits: []core.Algorithm{
			core.TokenBucket{Rate: 2, Per: time.Second, Burst: 4},
			core.TokenBucket{Rate: 2, Per: time.Second, Burst: 10},
			core.TokenBucket{Rate: 1, Per: time.Second, Burst: 4},
			core.TokenBucket{Rate: 4, Per: time.Second, Burst: 4},
			core.TokenBucket{Rate: 6, Per: 2 * time.Second, Burst: 2},
		},
		steps: []step{
			{0, "decide 3", "3 used, 1 left, next 500ms, reset 1.5s"},
			// The time until the bucket is full stays the same.
			{0, "use 1", "3 used, 7 left, next 500ms, reset 1.5s"},
			{0, "use 2", "2 used, 2 left, next 500ms, reset 1.5s"},
			// A bucket that fills in less time denies until the backlog has drained to its
			// capacity.
			{0, "use 3", "denied, 6 used, 0 left, retry 500ms, next 750ms, reset 1.5s"},
			{0, "decide 1", "denied, 6 used, 0 left, retry 750ms, next 750ms, reset 1.5s"},
			{0, "use 0", "3 used, 1 left, next 500ms, reset 1.5s"},
			{0, "use 4", "denied, 5 used, 0 left, retry 833.334ms, next 1.166667s, reset 1.5s"},
			{500 * time.Millisecond, "use 4", "denied, 3 used, 0 left, retry 333.334ms, next 666.667ms, reset 1s"},
			{0, "use 3", "4 used, 0 left, next 250ms, reset 1s"},
			{250 * time.Millisecond, "decide 1", "4 used, 0 left, next 250ms, reset 1s"},
			// Each limit counts what was charged under the others.
			{0, "use 0", "2 used, 2 left, next 500ms, reset 1s"},
		},
	},
	{
		name: "token bucket with fractional microseconds",
		limits: []core.Algorithm{
			core.TokenBucket{Rate: 2, Per: time.Second, Burst: 4},
			core.TokenBucket{Rate: 6, Per: 2 * time.Second, Burst: 2},
		},
		steps: []step{
			{0, "use 1", "0 used, 2 left"},
			{0, "decide 2", "2 used, 0 left, next 333.334ms, reset 666.667ms"},
			// A fractional microsecond is rounded up in a bucket with other fractions.
			{0, "use 0", "2 used, 2 left, next 166.667ms, reset 666.667ms"},
			{0, "decide 2", "4 used, 0 left, next 166.667ms, reset 1.666667s"},
		},
	},
	{
		name:   "leaky bucket",
		limits: []core.Algorithm{core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 4}, core.LeakyBucket{Rate: 4, Per: time.Second, Capacity: 12}, core.LeakyBucket{Rate: 2, Per: time.Second, Capacity: 1}},
		steps: []step{
			{0, "reserve 2", "2 used, 2 left, next 500ms, reset 1s"},
			{0, "reserve 1 for 1s", "3 used, 1 left, next 500ms, reset 1.5s, delay 1s"},
			{0, "use 1", "6 used, 6 left, next 250ms, reset 1.5s"},
			// Earlier reservations leave first: the second unit has leaked at 1.5s.
			{0, "reserve 2 for 10s", "8 used, 4 left, next 250ms, reset 2s, delay 1.5s"},
			{2 * time.Second, "use 2", "0 used, 1 left"},
			{0, "decide 1", "1 used, 0 left, next 500ms, reset 500ms"},
			{0, "use 0", "1 used, 3 left, next 500ms, reset 500ms"},
			{0, "decide 3", "4 used, 0 left, next 500ms, reset 2s"},
			{0, "use 2", "denied, 4 used, 0 left, retry 1.5s, next 2s, reset 2s"},
		},
	},
	{
		name: "fixed window",
		limits: []core.Algorithm{
			core.FixedWindow{Limit: 10, Window: time.Minute},
			core.FixedWindow{Limit: 20, Window: time.Minute},
			core.FixedWindow{Limit: 3, Window: time.Minute},
			core.FixedWindow{Limit: 10, Window: time.Hour},
			core.FixedWindow{Limit: 11, Window: time.Minute},
			core.FixedWindow{Limit: 10, Window: 10 * time.Second},
			core.FixedWindow{Limit: 10, Window: time.Hour, FromFirst: true},
		},
		steps: []step{
			{20 * time.Second, "decide 8", "8 used, 2 left, next 40s, reset 40s"},
			{0, "use 1", "8 used, 12 left, next 40s, reset 40s"},
			{0, "use 2", "denied, 8 used, 0 left, retry 40s, next 40s, reset 40s"},
			{0, "use 3", "8 used, 2 left, next 59m40s, reset 59m40s"},
			{0, "decide 2", "10 used, 0 left, next 59m40s, reset 59m40s"},
			{0, "use 0", "10 used, 0 left, next 40s, reset 40s"},
			{0, "decide 1", "denied, 10 used, 0 left, retry 40s, next 40s, reset 40s"},
			{0, "decide 1", "denied, 10 used, 0 left, retry 40s, next 40s, reset 40s"},
			// Denials were not counted.
			{0, "use 4", "10 used, 1 left, next 40s, reset 40s"},
			{0, "atmost 5", "got 1, 11 used, 0 left, next 40s, reset 40s"},
			// A window of 10 s that started at noon is over.
			{0, "use 5", "0 used, 10 left"},
			{0, "use 6", "denied, 11 used, 0 left, retry 59m40s, next 59m40s, reset 59m40s"},
		},
	},
	{
		name: "two counters",
		limits: []core.Algorithm{
			core.SlidingWindow{Limit: 10, Window: time.Minute},
			core.SlidingWindow{Limit: 20, Window: time.Minute},
			core.SlidingWindow{Limit: 3, Window: time.Minute},
			core.SlidingWindow{Limit: 10, Window: 10 * time.Second},
			core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6},
		},
		steps: []step{
			{0, "decide 8", "8 used, 2 left, next 1m7.5s, reset 2m0s"},
			{0, "use 1", "8 used, 12 left, next 1m7.5s, reset 2m0s"},
			// As the previous window, it counts as twice the new limit at most.
			{0, "use 2", "denied, 8 used, 0 left, retry 1m30s, next 1m40s, reset 2m0s"},
			{0, "decide 1", "denied, 8 used, 0 left, retry 1m40s, next 1m40s, reset 2m0s"},
			{0, "use 0", "8 used, 2 left, next 1m7.5s, reset 2m0s"},
			// A window of 10 s has followed, and half of it is over.
			{15 * time.Second, "use 3", "0 used, 10 left"},
			{0, "use 4", "0 used, 10 left"},
			{0, "use 0", "8 used, 2 left, next 52.5s, reset 1m45s"},
		},
	},
	{
		name: "buckets",
		limits: []core.Algorithm{
			core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6},
			core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 60},
			core.SlidingWindow{Limit: 20, Window: 2 * time.Minute, Buckets: 6},
			core.SlidingWindow{Limit: 3, Window: time.Minute, Buckets: 6},
			core.SlidingWindow{Limit: 10, Window: 5 * time.Second, Buckets: 5},
		},
		steps: []step{
			{4 * time.Second, "decide 4", "4 used, 6 left, next 1m6s, reset 1m6s"},
			{0, "use 1", "4 used, 6 left, next 57s, reset 57s"},
			{0, "use 2", "4 used, 16 left, next 2m16s, reset 2m16s"},
			{0, "use 3", "denied, 4 used, 0 left, retry 1m6s, next 1m6s, reset 1m6s"},
			{0, "use 0", "4 used, 6 left, next 1m6s, reset 1m6s"},
			{0, "decide 6", "10 used, 0 left, next 1m6s, reset 1m6s"},
			{3 * time.Second, "use 4", "0 used, 10 left"},
			{0, "use 0", "10 used, 0 left, next 1m3s, reset 1m3s"},
		},
	},
	{
		name: "log",
		limits: []core.Algorithm{
			core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}},
			core.SlidingLog{Windows: []core.Window{{Limit: 20, Width: time.Minute}}},
			core.SlidingLog{Windows: []core.Window{{Limit: 3, Width: time.Minute}}},
			core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}}},
			core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: time.Hour}, {Limit: 2, Width: time.Second}}},
		},
		steps: []step{
			{0, "decide 5", "5 used, 5 left, next 1m0s, reset 1m0s"},
			{10 * time.Second, "decide 3", "8 used, 2 left, next 50s, reset 1m0s"},
			{0, "use 1", "8 used, 12 left, next 50s, reset 1m0s"},
			{0, "use 2", "denied, 8 used, 0 left, retry 50s, next 1m0s, reset 1m0s"},
			{0, "decide 1", "denied, 8 used, 0 left, retry 1m0s, next 1m0s, reset 1m0s"},
			{0, "use 3", "8 used, 2 left, next 59m50s, reset 1h0m0s"},
			{time.Minute, "use 0", "0 used, 10 left"},
			{0, "use 3", "8 used, 2 left, next 58m50s, reset 59m0s"},
			{0, "decide 2", "10 used, 0 left, next 58m50s, reset 1h0m0s"},
			{0, "use 4", "10 used, 0 left, next 1s, reset 1h0m0s"},
			// A charge under a shorter window drops the entries outside that window.
			{time.Second, "use 0", "2 used, 8 left, next 59s, reset 59s"},
			{0, "decide 1", "3 used, 7 left, next 59s, reset 1m0s"},
			{0, "use 3", "3 used, 7 left, next 59m59s, reset 1h0m0s"},
		},
	},
	{
		name: "calendar",
		limits: []core.Algorithm{
			core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC},
			core.Calendar{Limit: 20, Every: core.PeriodDay, In: time.UTC},
			core.Calendar{Limit: 3, Every: core.PeriodDay, In: time.UTC},
			core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC},
			core.Calendar{Limit: 10, Every: core.PeriodDay, In: lordHowe},
			core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC, Anchor: noon.Add(6 * time.Hour)},
			core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC, Anchor: noon.AddDate(-1, 0, 17).Add(6 * time.Hour)},
			core.Calendar{Limit: 10, Every: core.PeriodDay, In: time.UTC, Anchor: noon.Add(12 * time.Hour)},
		},
		steps: []step{
			{0, "decide 8", "8 used, 2 left, next 12h0m0s, reset 12h0m0s"},
			{0, "use 1", "8 used, 12 left, next 12h0m0s, reset 12h0m0s"},
			{0, "use 2", "denied, 8 used, 0 left, retry 12h0m0s, next 12h0m0s, reset 12h0m0s"},
			{0, "use 3", "0 used, 10 left"},
			{0, "use 0", "8 used, 2 left, next 12h0m0s, reset 12h0m0s"},
			// Each time zone has its own count, and each anchor too, unless it is of the same periods.
			{0, "use 4", "0 used, 10 left"},
			{0, "use 5", "0 used, 10 left"},
			{0, "decide 7", "7 used, 3 left, next 6h0m0s, reset 6h0m0s"},
			{0, "use 6", "7 used, 3 left, next 6h0m0s, reset 6h0m0s"},
			{0, "use 7", "8 used, 2 left, next 12h0m0s, reset 12h0m0s"},
			{0, "use 0", "8 used, 2 left, next 12h0m0s, reset 12h0m0s"},
		},
	},
	{
		// The debt of a window that follows a charge's own is not refunded with that charge, also where
		// another width made the window last longer for a while.
		name: "debt of another window",
		limits: []core.Algorithm{
			core.FixedWindow{Limit: 30, Window: time.Second}, core.FixedWindow{Limit: 30, Window: 2 * time.Second},
		},
		steps: []step{
			{0, "reserve 9", "9 used, 21 left, next 1s, reset 1s"},
			{500 * time.Millisecond, "use 1", "9 used, 21 left, next 1.5s, reset 1.5s"},
			{0, "reserve 21", "30 used, 0 left, next 1.5s, reset 1.5s"},
			{0, "settle 1 31", "denied, 40 used, 0 left, retry 1.5s, next 1.5s, reset 3.5s"},
			{700 * time.Millisecond, "use 0", "10 used, 20 left, next 800ms, reset 800ms"},
			{0, "cancel 0", "10 used, 20 left, next 800ms, reset 800ms"},
		},
	},
	{
		name:   "widened window",
		limits: []core.Algorithm{core.FixedWindow{Limit: 5, Window: 500 * time.Millisecond}, core.FixedWindow{Limit: 5, Window: time.Hour}},
		steps: []step{
			{0, "decide 5", "5 used, 0 left, next 500ms, reset 500ms"},
			{0, "use 1", "5 used, 0 left, next 1h0m0s, reset 1h0m0s"},
			{0, "decide 1", "denied, 5 used, 0 left, retry 1h0m0s, next 1h0m0s, reset 1h0m0s"},
			{400 * time.Millisecond, "decide 1", "denied, 5 used, 0 left, retry 59m59.6s, next 59m59.6s, reset 59m59.6s"},
			{30 * time.Minute, "decide 1", "denied, 5 used, 0 left, retry 29m59.6s, next 29m59.6s, reset 29m59.6s"},
		},
	},
	{
		name:   "narrower token bucket",
		limits: []core.Algorithm{core.TokenBucket{Rate: 70, Per: time.Minute, Burst: 100}, core.TokenBucket{Rate: 3, Per: time.Second, Burst: 5}},
		steps: []step{
			{0, "decide 100", "100 used, 0 left, next 857.143ms, reset 1m25.714286s"},
			// A bucket that is 85.7 s deep has room when it has drained to 1.67 s, less a token.
			{0, "use 1", "denied, 258 used, 0 left, retry 1m24.04762s, next 1m24.380953s, reset 1m25.714286s"},
			{0, "decide 1", "denied, 258 used, 0 left, retry 1m24.380953s, next 1m24.380953s, reset 1m25.714286s"},
		},
	},
	{
		name: "algorithm",
		limits: []core.Algorithm{
			core.PerMinute(10), core.LeakyBucket{Rate: 10, Per: time.Minute, Capacity: 10}, core.FixedWindow{Limit: 10, Window: time.Minute},
			core.SlidingWindow{Limit: 10, Window: time.Minute}, core.SlidingWindow{Limit: 10, Window: time.Minute, Buckets: 6},
			core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}}, core.Calendar{Limit: 10, Every: core.PeriodMinute, In: time.UTC},
			core.Unlimited{}, core.DenyAll{}, frozen(10),
		},
		steps: []step{
			{0, "decide 9", "9 used, 1 left, next 6s, reset 54s"},
			{0, "use 1", "0 used, 10 left"},
			{0, "decide 9", "9 used, 1 left, next 6s, reset 54s"},
			{0, "use 2", "0 used, 10 left"},
			{0, "decide 9", "9 used, 1 left, next 1m0s, reset 1m0s"},
			{0, "use 3", "0 used, 10 left"},
			{0, "decide 5", "5 used, 5 left, next 1m12s, reset 2m0s"},
			{0, "use 4", "0 used, 10 left"},
			{0, "decide 9", "9 used, 1 left, next 1m10s, reset 1m10s"},
			{0, "use 5", "0 used, 10 left"},
			{0, "decide 9", "9 used, 1 left, next 1m0s, reset 1m0s"},
			{0, "use 6", "0 used, 10 left"},
			{0, "decide 9", "9 used, 1 left, next 1m0s, reset 1m0s"},
			{0, "use 9", "0 used, 10 left"},
			{0, "use 7", "0 used, 0 left"},
			{0, "decide 1000", "0 used, 0 left"},
			{0, "use 8", "denied, 0 used, 0 left, retry never, next never, reset never"},
			{0, "decide 1", "denied, 0 used, 0 left, retry never, next never, reset never"},
			{0, "use 0", "9 used, 1 left, next 6s, reset 54s"},
		},
	},
}
