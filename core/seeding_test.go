package core_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// budgets is how many keys processes seed at once.
func budgets() int {
	if long() {
		return 5000
	}
	return 200
}

// spentBefore is the ledger's figure of a budget.
func spentBefore(i int) int64 { return 100 + int64(i%50) }

// seeded returns a budget that processes seed with RaiseUsed, and one with a ledger.
func seeded(t testing.TB) (byHand, byLedger *core.Policy) {
	year := core.Calendar{Limit: 1_000_000, Every: core.PeriodYear, In: time.UTC}
	return limited(t, "by-hand", year), newPolicy(t, core.PolicyConfig{
		Name: "by-ledger", Algorithm: year, OnFailure: core.FailClosed,
		Ledger: func(_ context.Context, key core.Key, _ core.Span) (int64, error) {
			i, err := strconv.Atoi(key.String()[1 : len(key.String())-1])
			return spentBefore(i), err
		},
	})
}

// seedAndSpend seeds every budget by hand and spends one unit of each, in random order. It returns how
// many units it spent.
func seedAndSpend(t *testing.T, g *core.Gate) int64 {
	byHand, byLedger := seeded(t)
	var spent atomic.Int64
	var wg sync.WaitGroup
	order := rand.Perm(2 * budgets())
	for part := range perProcess {
		wg.Go(func() {
			for at := part; at < len(order); at += perProcess {
				i, ctx := order[at]/2, context.Background()
				key := newKey(t, strconv.Itoa(i))
				if order[at]%2 == 0 {
					c := core.Charge{Policy: byHand, Key: key}
					if _, err := g.RaiseUsed(ctx, c, spentBefore(i), time.Now()); err != nil {
						t.Error(err)
					}
					continue
				}
				for _, p := range []*core.Policy{byHand, byLedger} {
					d, err := g.Decide(ctx, core.Charge{Policy: p, Key: key, Cost: 1})
					if err != nil || d.Cause != nil || !d.Allowed {
						t.Error(show(d), err)
						return
					}
				}
				spent.Add(1)
			}
		})
	}
	wg.Wait()
	return spent.Load()
}

// When Redis has lost its data, processes under load seed the same budgets at once. No figure of the
// ledger counts twice, and none is missed.
func TestProcessesSeedTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	children := append(startProcesses(t, s), startProcesses(t, s)...)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	byHand, byLedger := seeded(t)
	for range 2 {
		noError(t, s.Client(t).FlushAll(t.Context()).Err())
		each := int64(len(children))
		if sum := sumOf(t, children, "seed", func(string) {}); sum != each*int64(budgets()) {
			t.Fatalf("%d units were spent", sum)
		}
		for i := range budgets() {
			key, before := newKey(t, strconv.Itoa(i)), spentBefore(i)
			if n := used(t, g, byHand, key); n < before || n > before+each {
				t.Errorf("budget %d: %d units in use, the ledger says %d, and %d were spent since", i, n, before, each)
			}
			if n := used(t, g, byLedger, key); n != before+each {
				t.Errorf("budget %d with a ledger: %d units in use, the ledger says %d, and %d were spent since", i, n, before, each)
			}
		}
	}
}
