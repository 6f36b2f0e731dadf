package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/plans"
)

// kind is something that Redis keeps for a key.
type kind struct {
	name string
	// fill makes the key, and call decides on it once it is there. Either may be nil.
	fill, call func(ctx context.Context, key int) error
}

const much = 1_000_000

func kinds(gate *core.Gate, client redis.UniversalClient, keys []core.Key) ([]kind, error) {
	day := 24 * time.Hour
	all := []kind{{name: "PING", call: func(ctx context.Context, _ int) error { return client.Ping(ctx).Err() }}}
	for _, l := range []struct {
		name     string
		policies int
		calls    int
		limit    core.Algorithm
	}{
		{"TokenBucket", 1, 1, core.TokenBucket{Rate: 1, Per: time.Second, Burst: much}},
		{"TokenBucket, a token is no whole number of microseconds", 1, 1, core.TokenBucket{Rate: 7, Per: 3 * time.Second, Burst: much}},
		{"TokenBucket, 2 policies", 2, 1, core.TokenBucket{Rate: 1, Per: time.Second, Burst: much}},
		{"TokenBucket, 4 policies", 4, 1, core.TokenBucket{Rate: 1, Per: time.Second, Burst: much}},
		{"LeakyBucket", 1, 1, core.LeakyBucket{Rate: 1, Per: time.Second, Capacity: much}},
		{"FixedWindow", 1, 1, core.FixedWindow{Limit: much, Window: day}},
		{"SlidingWindow", 1, 1, core.SlidingWindow{Limit: much, Window: day}},
		{"SlidingWindow, 60 buckets, one in use", 1, 1, core.SlidingWindow{Limit: much, Window: day, Buckets: 60}},
		{"SlidingLog, 1 charge", 1, 1, core.SlidingLog{Windows: []core.Window{{Limit: 1000, Width: day}}}},
		{"SlidingLog, 10 charges", 1, 10, core.SlidingLog{Windows: []core.Window{{Limit: 1000, Width: day}}}},
		{"Calendar", 1, 1, core.Calendar{Limit: much, Every: core.PeriodMonth, In: time.UTC}},
		{"Block, 1 strike", 1, 1, core.Block{Strikes: 100, Within: day, For: day}},
	} {
		charges := make([]core.Charge, l.policies)
		for i := range charges {
			p, err := core.NewPolicy(core.PolicyConfig{Name: "p" + strconv.Itoa(i), Algorithm: l.limit})
			if err != nil {
				return nil, fmt.Errorf("make the policy of %s: %w", l.name, err)
			}
			charges[i] = core.Charge{Policy: p, Cost: 1}
		}
		call := func(ctx context.Context, key int) error {
			var own [4]core.Charge
			for i, c := range charges {
				c.Key = keys[key]
				own[i] = c
			}
			return allowed(gate.Decide(ctx, own[:len(charges)]...))
		}
		all = append(all, kind{l.name, times(l.calls, call), call})
	}
	others, err := others(gate, client, keys)
	return append(all, others...), err
}

// times repeats a call.
func times(n int, call func(context.Context, int) error) func(context.Context, int) error {
	return func(ctx context.Context, key int) error {
		for range n {
			if err := call(ctx, key); err != nil {
				return err
			}
		}
		return nil
	}
}

func allowed(d core.Decision, err error) error {
	if err == nil {
		err = d.Cause
	}
	if err == nil && !d.Allowed {
		err = errors.New("denied")
	}
	return err
}

// others are the kinds that are no plain decision.
func others(gate *core.Gate, client redis.UniversalClient, keys []core.Key) ([]kind, error) {
	bucket := core.TokenBucket{Rate: 1, Per: time.Second, Burst: much}
	held, err := core.NewPolicy(core.PolicyConfig{Name: "held", Algorithm: bucket, Hold: time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the policy with a hold: %w", err)
	}
	slots, err := semaphore.New(gate, semaphore.Config{Name: "slots", TTL: time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the semaphore: %w", err)
	}
	webhooks, err := once.New(gate, once.Config{Name: "webhooks", Window: time.Hour})
	if err != nil {
		return nil, fmt.Errorf("make the once: %w", err)
	}
	filter, err := bloom.New(gate, bloom.Config{Name: "items", Items: int64(len(keys)), FalsePositives: 0.01})
	if err != nil {
		return nil, fmt.Errorf("make the filter: %w", err)
	}
	set, err := plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{"free": {}}})
	if err != nil {
		return nil, fmt.Errorf("make the plans: %w", err)
	}
	book, err := plans.New(plans.Config{Set: set, Client: client})
	if err != nil {
		return nil, fmt.Errorf("make the book of plans: %w", err)
	}
	reserve := func(ctx context.Context, key int) (*core.Reservation, error) {
		r, d, err := gate.Reserve(ctx, 0, core.Charge{Policy: held, Key: keys[key], Cost: 1})
		return r, allowed(d, err)
	}
	acquire := func(ctx context.Context, key int) (*semaphore.Lease, error) {
		return slots.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{{Key: keys[key], Limit: 20}}})
	}
	release := func(ctx context.Context, key int) error {
		l, err := acquire(ctx, key)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
	once := func(ctx context.Context, key int) error {
		return webhooks.Do(ctx, keys[key], 0, func(context.Context) error { return nil })
	}
	item := func(ctx context.Context, key int) error {
		_, err := filter.TestAndAdd(ctx, "item-"+strconv.Itoa(key))
		return err
	}
	return []kind{
		{"hold: a TokenBucket and a reservation that runs", func(ctx context.Context, key int) error {
			_, err := reserve(ctx, key)
			return err
		}, func(ctx context.Context, key int) error {
			r, err := reserve(ctx, key)
			if err != nil {
				return err
			}
			return r.Settle(ctx, 1)
		}},
		{"slot: one holder of a key", func(ctx context.Context, key int) error {
			_, err := acquire(ctx, key)
			return err
		}, nil},
		{"slot: 4 holders of a key", times(4, func(ctx context.Context, key int) error {
			_, err := acquire(ctx, key)
			return err
		}), nil},
		{"slot: an acquire and its release, nobody else there", release, release},
		{"once: a key that is done", once, nil},
		{"filter: an item, 1 % false positives", nil, item},
		{"plan: the override of a tenant", func(ctx context.Context, key int) error {
			return book.SetOverride(ctx, "tenant-"+strconv.Itoa(key), plans.Override{Plan: "free"})
		}, nil},
	}, nil
}
