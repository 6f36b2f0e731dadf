package core_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// Sixteen charges of all algorithms, whether admitted, denied, reserved or cancelled, take one
// command and one script.
func TestSixteenChargesTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var sent atomic.Int64
	client.AddHook(gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		sent.Add(int64(len(cmds)))
		return send()
	}))
	g := redisGate(t, client, core.Config{Prefix: s.Prefix})
	var charges []core.Charge
	for i := range core.MaxCharges {
		charges = append(charges, core.Charge{
			Policy: limited(t, fmt.Sprint("p", i), limitsOfTen[i%len(limitsOfTen)].algorithm),
			Key:    newKey(t, "tenant", fmt.Sprint("user", i%3)), Cost: 1,
		})
	}
	decide(t, g, charges...)

	var reservation *core.Reservation
	is := func(allowed bool) func(core.Decision, error) error {
		return func(d core.Decision, err error) error {
			if err == nil && (d.Allowed != allowed || d.Cause != nil || d.Len() != len(charges)) {
				err = fmt.Errorf("%s", show(d))
			}
			return err
		}
	}
	greedy := append([]core.Charge(nil), charges...)
	greedy[len(greedy)-1].Cost = 11
	tests := []struct {
		name string
		call func() error
	}{
		{"admitted", func() error { return is(true)(g.Decide(t.Context(), charges...)) }},
		{"denied", func() error { return is(false)(g.Decide(t.Context(), greedy...)) }},
		{"peek", func() error { return is(true)(g.Peek(t.Context(), charges...)) }},
		{"at most", func() error {
			n, d, err := atMost(g, t.Context(), charges...)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d granted", n)
			}
			return is(true)(d, err)
		}},
		{"reserved", func() error {
			// An hour is long enough for the queue of the leaky bucket.
			r, d, err := g.Reserve(t.Context(), time.Hour, charges...)
			reservation = r
			return is(true)(d, err)
		}},
		{"cancelled", func() error { return reservation.Cancel(t.Context()) }},
	}
	for _, tt := range tests {
		client, server := sent.Load(), s.Calls(t, "evalsha", "eval")
		if err := tt.call(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		client, server = sent.Load()-client, s.Calls(t, "evalsha", "eval")-server
		if client != 1 || server != 1 {
			t.Errorf("%s: %d commands and %d scripts", tt.name, client, server)
		}
	}
}

// scriptTime returns the microseconds that the server has spent in scripts, and the number of
// scripts.
func scriptTime(b *testing.B, client *redis.Client) (micros, calls float64) {
	b.Helper()
	text, err := client.Info(context.Background(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		stats, ok := strings.CutPrefix(line, "cmdstat_evalsha:")
		if !ok {
			continue
		}
		for field := range strings.SplitSeq(stats, ",") {
			name, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseFloat(value, 64)
			switch {
			case name != "calls" && name != "usec":
			case err != nil:
				b.Fatal(err)
			case name == "calls":
				calls = n
			default:
				micros = n
			}
		}
	}
	return micros, calls
}

// measure runs the benchmark and reports the server's time per script.
func measure(b *testing.B, client *redis.Client, call func()) {
	micros, calls := scriptTime(b, client)
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
	after, all := scriptTime(b, client)
	b.ReportMetric((after-micros)/(all-calls), "server-µs/op")
}

// BenchmarkAlgorithms times one charge of each algorithm, admitted and denied. The benchmark moves
// the clock, so that the speed of the machine does not change the size of the state: it is as large
// as the name says.
func BenchmarkAlgorithms(b *testing.B) {
	tests := []struct {
		name      string
		algorithm core.Algorithm
		step      time.Duration // between two charges
		fill      int           // charges until the state has its full size
	}{
		{"token bucket", core.PerSecond(1_000_000), time.Microsecond, 1},
		{"token bucket of broken microseconds", core.PerSecond(300_007), 4 * time.Microsecond, 1},
		{"frozen", frozen(1e15), time.Microsecond, 1},
		{"leaky bucket", core.LeakyBucket{Rate: 1_000_000, Per: time.Second, Capacity: 1_000_000}, time.Microsecond, 1},
		{"fixed window", core.FixedWindow{Limit: 1e15, Window: time.Second}, time.Millisecond, 1},
		{"window from first", core.FixedWindow{Limit: 1e15, Window: time.Second, FromFirst: true}, time.Millisecond, 1},
		{"two counters", core.SlidingWindow{Limit: 1e12, Window: time.Second}, time.Millisecond, 1},
		{"10 buckets", core.SlidingWindow{Limit: 1e15, Window: time.Second, Buckets: 10}, time.Second / 10, 20},
		{"100 buckets", core.SlidingWindow{Limit: 1e15, Window: time.Second, Buckets: 100}, time.Second / 100, 200},
		{"1000 buckets", core.SlidingWindow{Limit: 1e15, Window: time.Second, Buckets: 1000}, time.Second / 1000, 2000},
		{"log of 10", core.SlidingLog{Windows: []core.Window{{Limit: 10_000, Width: time.Second}}}, time.Second / 10, 20},
		{"log of 1000", core.SlidingLog{Windows: []core.Window{{Limit: 10_000, Width: time.Second}}}, time.Second / 1000, 2000},
		{"log of 1000, three windows", core.SlidingLog{Windows: []core.Window{
			{Limit: 1000, Width: time.Second / 100}, {Limit: 5000, Width: time.Second / 10}, {Limit: 10_000, Width: time.Second},
		}}, time.Second / 1000, 2000},
		{"calendar", core.Calendar{Limit: 1e15, Every: core.PeriodMonth, In: time.UTC}, time.Millisecond, 1},
	}
	s := redistest.Start(b)
	client := s.Client(b)
	for _, tt := range tests {
		clock := newClock()
		g := redisGate(b, client, core.Config{Prefix: s.Prefix, DisableDenialCache: true})
		g.InjectClock(micros(clock))
		c := core.Charge{Policy: limited(b, "p", tt.algorithm), Cost: 1}
		allow := func(b *testing.B) {
			clock.Advance(tt.step)
			if d, err := g.Decide(context.Background(), c); err != nil || !d.Allowed || d.Cause != nil {
				b.Fatal(err, show(d))
			}
		}
		b.Run(tt.name+"/allowed", func(b *testing.B) {
			c.Key = newKey(b, tt.name, "allowed")
			for range tt.fill {
				allow(b)
			}
			measure(b, client, func() { allow(b) })
		})
		b.Run(tt.name+"/denied", func(b *testing.B) {
			c.Key = newKey(b, tt.name, "denied")
			for range tt.fill {
				allow(b)
			}
			rest := c
			rest.Cost = math.MaxInt64
			if _, _, err := atMost(g, context.Background(), rest); err != nil {
				b.Fatal(err)
			}
			measure(b, client, func() {
				if d, err := g.Decide(context.Background(), c); err != nil || d.Allowed || d.Cause != nil {
					b.Fatal(err, show(d))
				}
			})
		})
	}
}
