package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
)

// bench is the flags of bench.
type bench struct {
	*app
	duration time.Duration
	callers  int
	keys     int
	limits   int
}

func newBench(a *app) *cobra.Command {
	b := bench{app: a}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure decisions a second on this Redis, beside its PING",
		Long: `Bench lets a number of callers send PING for a while, and then decide on random
keys for as long, both on one client. The quotient says what a decision costs
beside a round trip: callers that wait share round trips, so it may be above 1.

It loads the server. Its keys are below PREFIX:{bench-...} and live for a few
seconds.`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              action(b.run),
	}
	f := cmd.Flags()
	f.DurationVar(&b.duration, "duration", 3*time.Second, "how long each of the two runs")
	f.IntVar(&b.callers, "callers", 64, "how many callers ask at once")
	f.IntVar(&b.keys, "keys", 10_000, "on how many keys they ask")
	f.IntVar(&b.limits, "limits", 1, "how many limits a decision has, 1 to 16")
	return cmd
}

// measured is what one run has measured.
type measured struct {
	Name      string  `json:"name"`
	Calls     int64   `json:"calls"`
	PerSecond float64 `json:"per_second"`
	P50       seconds `json:"p50_seconds"`
	P99       seconds `json:"p99_seconds"`
	Failed    int64   `json:"failed"`
}

// benched is the answer of bench.
type benched struct {
	Callers  int        `json:"callers"`
	Keys     int        `json:"keys"`
	Limits   int        `json:"limits"`
	Runs     []measured `json:"runs"`
	Quotient float64    `json:"decisions_per_ping"`
}

func (b *bench) run(ctx context.Context, _ []string) error {
	switch {
	case b.duration < 10*time.Millisecond:
		return usagef("--duration is %v: it must be at least 10ms", b.duration)
	case b.callers < 1 || b.callers > 10_000:
		return usagef("--callers is %d: it must be between 1 and 10000", b.callers)
	case b.keys < 1 || b.keys > 1_000_000:
		return usagef("--keys is %d: it must be between 1 and 1000000", b.keys)
	case b.limits < 1 || b.limits > core.MaxCharges:
		return usagef("--limits is %d: it must be between 1 and %d", b.limits, core.MaxCharges)
	}
	l, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	if err := l.gate.Ping(ctx); err != nil {
		return err
	}
	decide, err := b.decisions(l.gate)
	if err != nil {
		return err
	}
	ping := func(ctx context.Context, _ int) error { return l.client.Ping(ctx).Err() }
	a := benched{Callers: b.callers, Keys: b.keys, Limits: b.limits}
	for _, one := range []struct {
		name string
		call func(context.Context, int) error
	}{{"PING", ping}, {"decisions", decide}} {
		m, err := b.measure(ctx, one.name, one.call)
		if err != nil {
			return err
		}
		a.Runs = append(a.Runs, m)
	}
	a.Quotient = a.Runs[1].PerSecond / a.Runs[0].PerSecond
	return b.show(&a)
}

// decisions returns a func that decides on one of the keys. They are admitted, and are full again
// within a second.
func (b *bench) decisions(gate *core.Gate) (func(context.Context, int) error, error) {
	outermost := "bench-" + rand.Text()[:8]
	var policies []*core.Policy
	for i := range b.limits {
		p, err := core.NewPolicy(core.PolicyConfig{
			Name:      fmt.Sprintf("bench-%d", i),
			Algorithm: core.TokenBucket{Rate: 1_000_000, Per: time.Second, Burst: 1_000_000},
		})
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	keys := make([]core.Key, b.keys)
	for i := range keys {
		var err error
		if keys[i], err = core.NewKey(fmt.Sprintf("%s-%d", outermost, i)); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, n int) error {
		var all [core.MaxCharges]core.Charge
		for i, p := range policies {
			all[i] = core.Charge{Policy: p, Key: keys[n%len(keys)]}
		}
		d, err := gate.Decide(ctx, all[:len(policies)]...)
		if err == nil && d.Source != core.SourceRedis {
			err = d.Cause
		}
		return err
	}, nil
}

// measure lets all callers call for the duration, and waits for the calls under way then.
func (b *bench) measure(
	ctx context.Context, name string, call func(context.Context, int) error,
) (measured, error) {
	var callers sync.WaitGroup
	var next, failed atomic.Int64
	var fault atomic.Pointer[error]
	times := make([][]time.Duration, b.callers)
	start := time.Now()
	ends := start.Add(b.duration)
	for c := range b.callers {
		callers.Go(func() {
			for before := start; before.Before(ends) && ctx.Err() == nil; before = time.Now() {
				n := int(next.Add(1)) * 7919 // spread over the keys
				if err := call(ctx, n); err != nil {
					failed.Add(1)
					fault.Store(&err)
					continue
				}
				times[c] = append(times[c], time.Since(before))
			}
		})
	}
	callers.Wait()
	took := time.Since(start)
	if err := ctx.Err(); err != nil {
		return measured{}, err
	}
	all := slices.Concat(times...)
	if len(all) == 0 {
		return measured{}, *fault.Load()
	}
	slices.Sort(all)
	return measured{
		Name: name, Calls: int64(len(all)), PerSecond: float64(len(all)) / took.Seconds(),
		P50: seconds(all[len(all)/2]), P99: seconds(all[len(all)*99/100]), Failed: failed.Load(),
	}, nil
}

func (b *bench) show(a *benched) error {
	if b.json {
		return writeJSON(b.out, a)
	}
	fmt.Fprintf(b.out, "%d callers, %s keys, %d limits a decision, %v each\n\n",
		a.Callers, count(int64(a.Keys)), a.Limits, b.duration)
	t := newTable(b.out, "", "A SECOND", "MEDIAN", "P99", "FAILED")
	for _, m := range a.Runs {
		t.add(m.Name, count(int64(m.PerSecond)), span(time.Duration(m.P50)), span(time.Duration(m.P99)),
			count(m.Failed))
	}
	_ = t.Flush()
	fmt.Fprintf(b.out, "\n%.2f decisions for each PING\n", a.Quotient)
	return nil
}
