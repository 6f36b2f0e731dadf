package core_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
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

// alternatingLimits are limits of one policy that decide on a key in alternation, as while a new
// deployment replaces an old one. Together they admit at most that many units in one instant.
var alternatingLimits = []struct {
	name   string
	limits []core.Algorithm
	most   int64
}{
	{"bursts", []core.Algorithm{
		core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 100}, core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 10},
	}, 100},
	{"three bursts", []core.Algorithm{
		core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 100}, core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 50},
		core.TokenBucket{Rate: 100, Per: time.Hour, Burst: 10},
	}, 100},
	{"bursts in rising order", []core.Algorithm{
		core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 10}, core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 50},
		core.TokenBucket{Rate: 7, Per: time.Hour, Burst: 100},
	}, 100},
	{"periods", []core.Algorithm{core.PerHour(100), core.PerMinute(100)}, 100},
	// A bucket of 100 a minute that is full is not full at 100 an hour.
	{"periods in rising order", []core.Algorithm{core.PerMinute(100), core.PerHour(100)}, 200},
	{"tokens below a microsecond", []core.Algorithm{
		core.TokenBucket{Rate: 1_000_000_000, Per: time.Second, Burst: 1900}, core.TokenBucket{Rate: 1_000_000_000, Per: time.Second, Burst: 1100},
	}, 1900},
	{"leaky buckets", []core.Algorithm{
		core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 100}, core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 10},
	}, 100},
	{"frozen", []core.Algorithm{frozen(100), frozen(10)}, 100},
	{"fixed windows", []core.Algorithm{
		core.FixedWindow{Limit: 100, Window: time.Hour}, core.FixedWindow{Limit: 10, Window: time.Hour},
	}, 100},
	{"window widths", []core.Algorithm{
		core.FixedWindow{Limit: 100, Window: time.Hour}, core.FixedWindow{Limit: 100, Window: time.Minute},
	}, 200},
	{"aligned and from first", []core.Algorithm{
		core.FixedWindow{Limit: 100, Window: time.Hour}, core.FixedWindow{Limit: 100, Window: time.Minute, FromFirst: true},
	}, 200},
	{"two counters", []core.Algorithm{
		core.SlidingWindow{Limit: 100, Window: time.Hour}, core.SlidingWindow{Limit: 10, Window: time.Hour},
	}, 100},
	{"windows of buckets", []core.Algorithm{
		core.SlidingWindow{Limit: 100, Window: time.Hour, Buckets: 10}, core.SlidingWindow{Limit: 10, Window: time.Hour, Buckets: 60},
	}, 100},
	{"logs", []core.Algorithm{
		core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: time.Hour}}}, core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Minute}}},
	}, 100},
	// The start of each zone's period restarts the count once.
	{"zones", []core.Algorithm{
		core.Calendar{Limit: 100, Every: core.PeriodDay, In: time.UTC}, core.Calendar{Limit: 100, Every: core.PeriodDay, In: loadZone("America/New_York")},
	}, 200},
	{"three zones", []core.Algorithm{
		core.Calendar{Limit: 100, Every: core.PeriodDay, In: time.UTC}, core.Calendar{Limit: 100, Every: core.PeriodDay, In: loadZone("America/New_York")},
		core.Calendar{Limit: 100, Every: core.PeriodDay, In: loadZone("America/Sao_Paulo")},
	}, 300},
	{"anchors", []core.Algorithm{
		core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC},
		core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC, Anchor: time.Date(2025, 1, 5, 0, 0, 0, 0, time.UTC)},
	}, 200},
}

// Alternating limits charge, cancel and settle at random, within microseconds of a clock that steps
// back and forth. Those whose units come back in between only charge, in one instant. The kept units
// never exceed what all limits together admit at once.
func TestAlternatingLimitsAtRandom(t *testing.T) {
	t.Parallel()
	for _, v := range alternatingLimits {
		most, still := v.most, false
		switch v.name {
		case "tokens below a microsecond": // they refill in the meantime
			still = true
		case "window widths", "aligned and from first":
			// Any charge under the shorter window restarts the count, even one that is cancelled.
			still = true
		case "periods":
			most = 200 // the order is random here
		}
		t.Run(v.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				policy := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(v.limits...)})
				rng := redistest.Rand(t)
				for i := range rounds(t, 40) {
					c.Set(noon.Add(90 * time.Second))
					charge := core.Charge{Policy: policy, Key: newKey(t, fmt.Sprint(i)), Cost: core.NoCost}
					type kept struct {
						*core.Reservation
						cost int64
					}
					var held []kept
					sum := int64(0)
					for range 30 {
						if !still {
							c.Advance(time.Duration(rng.Int64N(7)-3) * time.Microsecond)
						}
						charge.Limit = v.limits[rng.IntN(len(v.limits))]
						charge.Cost = 1 + rng.Int64N([]int64{3, 30, 100}[rng.IntN(3)])
						if n := len(held); n > 0 && !still && rng.IntN(3) == 0 {
							at := max(0, n-1-rng.IntN(4))
							actual := rng.Int64N(2) * rng.Int64N(held[at].cost)
							noError(t, held[at].Settle(t.Context(), actual))
							sum += actual - held[at].cost
							held = slices.Delete(held, at, at+1)
						} else if r, _, err := g.Reserve(t.Context(), 0, charge); err != nil {
							t.Fatal(err)
						} else if r != nil {
							sum += charge.Cost
							held = append(held, kept{r, charge.Cost})
						}
						if sum > most {
							t.Fatalf("history %d: %d units kept, want at most %d", i, sum, most)
						}
					}
				}
			})
		})
	}
}

// Two alternating zones or anchors admit their limits in each of their periods, and no more.
func TestAlternatingPeriods(t *testing.T) {
	t.Parallel()
	day := func(in *time.Location, anchor time.Time) core.Algorithm {
		return core.Calendar{Limit: 10, Every: core.PeriodDay, In: in, Anchor: anchor}
	}
	for name, limits := range map[string][]core.Algorithm{
		"zones":   {day(time.UTC, time.Time{}), day(loadZone("America/New_York"), time.Time{})},
		"anchors": {day(time.UTC, noon.Add(-6*time.Hour)), day(time.UTC, noon.Add(6*time.Hour))},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
				p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)})
				c.Set(noon)
				const days = 3
				got := int64(0)
				for i := range days * 24 {
					n, _, err := atMost(g, t.Context(), under(i, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 100})...)
					noError(t, err)
					got += n
					c.Advance(time.Hour)
				}
				if got < 2*10*days || got > 2*10*(days+1) {
					t.Errorf("%d admitted in %d days", got, days)
				}
			})
		})
	}
}

// A clock that steps forward and back locks no key for longer than the widest of its alternating
// limits would.
func TestAlternatingLimitsAfterClockStep(t *testing.T) {
	t.Parallel()
	limits := []core.Algorithm{
		core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 20}, core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 10},
		core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 10},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		policy := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(limits...)})
		for _, order := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 0}, {2, 1, 0}, {0, 1, 2}, {0, 2, 1}} {
			charge := core.Charge{Policy: policy, Key: newKey(t, fmt.Sprint(order)), Cost: 1}
			c.Advance(365 * 24 * time.Hour)
			for _, i := range order {
				gatetest.Must(g.Decide(t.Context(), under(i, charge)...))(t)
			}
			c.Advance(-365 * 24 * time.Hour)
			for range 3 {
				for _, i := range order {
					gatetest.Must(g.Peek(t.Context(), under(i, charge)...))(t)
				}
				c.Advance(10 * time.Minute)
			}
			for _, i := range order {
				if d, _ := g.Peek(t.Context(), under(i, charge)...); !d.Allowed {
					t.Errorf("%v: locked for 20 minutes: %s", order, show(d))
				}
			}
			c.Set(time.UnixMicro(epoch))
		}
	})
}

// A refund under another limit gives back what was charged, and nothing of other charges.
func TestCancelUnderAnotherLimit(t *testing.T) {
	t.Parallel()
	fixed := func(n int64) core.Algorithm { return core.FixedWindow{Limit: n, Window: time.Hour} }
	sliding := func(n int64) core.Algorithm { return core.SlidingWindow{Limit: n, Window: time.Hour} }
	buckets := func(n int64) core.Algorithm { return core.SlidingWindow{Limit: n, Window: time.Hour, Buckets: 10} }
	log := func(n int64) core.Algorithm {
		return core.SlidingLog{Windows: []core.Window{{Limit: n, Width: time.Hour}}}
	}
	calendar := func(n int64) core.Algorithm { return core.Calendar{Limit: n, Every: core.PeriodDay, In: time.UTC} }
	tokens := func(n int64) core.Algorithm { return core.TokenBucket{Rate: 1, Per: time.Hour, Burst: n} }
	tests := []struct {
		name                string
		from, to            core.Algorithm
		before, cost, after int64 // charged in this order; the middle one is cancelled
		used, usedNow       int64 // under the old limit, and under the new one
	}{
		{"fixed window", fixed(100), fixed(60), 0, 80, 20, 20, 20},
		{"two counters", sliding(100), sliding(60), 0, 80, 20, 20, 20},
		{"two counters, far above", sliding(100), sliding(10), 0, 50, 50, 50, 50},
		{"windows of buckets", buckets(100), buckets(60), 0, 80, 20, 20, 20},
		{"log", log(100), log(60), 0, 80, 20, 20, 20},
		{"calendar", calendar(100), calendar(60), 0, 80, 20, 20, 20},
		{"token bucket", tokens(100), tokens(60), 0, 80, 20, 20, 20},
		{"token bucket, above the new limit", tokens(100), tokens(60), 0, 20, 80, 80, 80},
		{"token bucket, middle charge", tokens(100), tokens(60), 30, 20, 50, 80, 80},
		{"token bucket, last charge", tokens(100), tokens(60), 70, 30, 0, 70, 70},
		{"frozen", frozen(100), frozen(60), 0, 80, 20, 20, 20},
		{"frozen, most is kept", frozen(100), frozen(60), 0, 20, 80, 80, 80},
		{"slower", core.PerSecond(10), core.TokenBucket{Rate: 1, Per: time.Second, Burst: 10}, 9, 1, 0, 9, 1},
		{"slower, not the last charge", core.PerSecond(10), core.TokenBucket{Rate: 1, Per: time.Second, Burst: 10}, 4, 5, 1, 5, 1},
		{"faster", core.TokenBucket{Rate: 1, Per: time.Second, Burst: 10}, core.PerSecond(10), 0, 5, 1, 1, 10},
		// 1/7 s is a fractional microsecond. The refund under the charge's own limit loses nothing.
		{"fractional microseconds", core.PerSecond(7), core.PerSecond(3), 1, 4, 1, 2, 1},
	}
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		for _, v := range tests {
			t.Run(v.name, func(t *testing.T) {
				charge := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: changing(v.from, v.to)}), Key: newKey(t, v.name), Cost: core.NoCost}
				charge.Cost = units(v.before)
				decide(t, g, charge)
				charge.Cost = v.cost
				held, d := reserve(t, g, 0, charge)
				if held == nil {
					t.Fatal(show(d))
				}
				charge.Cost = units(v.after)
				decide(t, g, charge)
				noError(t, held.Cancel(t.Context()))
				charge.Cost = core.NoCost
				wantUsed(t, g, charge.Policy, charge.Key, v.used)
				if d, _ = g.Peek(t.Context(), under(1, charge)...); d.At(0).Used != v.usedNow {
					t.Errorf("%d used under the new limit, want %d", d.At(0).Used, v.usedNow)
				}
			})
		}
	})
}

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
