package bloom_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func newFilter(t testing.TB, g *core.Gate, cfg bloom.Config) *bloom.Filter {
	t.Helper()
	f := gatetest.Must(bloom.New(g, cfg))(t)
	return f
}

// numbered returns n items that begin with a word.
func numbered(word string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(word, " ", i)
	}
	return all
}

// one returns the result of one item.
func one(results []bool, err error) (bool, error) { return len(results) == 1 && results[0], err }

func count(results []bool) (n int) {
	for _, r := range results {
		if r {
			n++
		}
	}
	return n
}

func TestFilter(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		ctx := t.Context()
		f := newFilter(t, g, bloom.Config{Name: "seen", Items: 2000, FalsePositives: 1e-6})
		if found, err := one(f.Test(ctx, "a")); found || err != nil {
			t.Fatalf("an empty filter has an item: %v, %v", found, err)
		}
		if isNew, err := one(f.TestAndAdd(ctx, "a")); !isNew || err != nil {
			t.Fatalf("the first item is not new: %v", err)
		}
		if isNew, err := one(f.TestAndAdd(ctx, "a")); isNew || err != nil {
			t.Fatalf("a known item is new: %v", err)
		}
		noError(t, f.Add(ctx, "b"))
		if found, err := one(f.Test(ctx, "b")); !found || err != nil {
			t.Fatalf("an item is missing: %v", err)
		}

		items := numbered("in", 1000)
		noError(t, f.Add(ctx, items[:500]...))
		twice := append(slices.Clone(items), items...)
		isNew, err := f.TestAndAdd(ctx, twice...)
		if err != nil || len(isNew) != 2000 || count(isNew[:500]) != 0 || count(isNew[500:1000]) != 500 || count(isNew[1000:]) != 0 {
			t.Errorf("%d results, %d new: %v", len(isNew), count(isNew), err)
		}
		found, err := f.Test(ctx, append(numbered("out", 1000), items...)...)
		if err != nil || len(found) != 2000 || count(found[:1000]) != 0 || count(found[1000:]) != 1000 {
			t.Errorf("%d results, %d found: %v", len(found), count(found), err)
		}
		if none, err := f.Test(ctx); len(none) != 0 || err != nil {
			t.Errorf("no items: %v, %v", none, err)
		}

		stats, err := f.Stats(ctx)
		if err != nil || stats.Items < 990 || stats.Items > 1014 || stats.FalsePositives > 1e-6 ||
			math.Abs(stats.Fill-float64(stats.Set)/float64(stats.Bits)) > 1e-9 || stats.Bits > 8*f.Bytes() {
			t.Errorf("%+v, %d bytes: %v", stats, f.Bytes(), err)
		}
		again := newFilter(t, g, bloom.Config{Name: "seen", Items: 2000, FalsePositives: 1e-6})
		if found, err := one(again.Test(ctx, "a")); !found || err != nil {
			t.Errorf("a filter of the same configuration lacks an item: %v", err)
		}
		noError(t, again.Reset(ctx))
		if found, err := f.Test(ctx, items...); count(found) != 0 || err != nil {
			t.Errorf("%d items are left after Reset: %v", count(found), err)
		}
		if stats, err := f.Stats(ctx); err != nil || stats.Set != 0 || stats.Items != 0 {
			t.Errorf("after Reset: %+v, %v", stats, err)
		}
	})
}

func TestFilterConfigFaults(t *testing.T) {
	g := memoryGate(t, core.Config{})
	valid := bloom.Config{Name: "f", Items: 1000, FalsePositives: 0.01}
	for _, tt := range []struct {
		name   string
		change func(c *bloom.Config)
		words  string
	}{
		{"no name", func(c *bloom.Config) { c.Name = "" }, "Name"},
		{"brace in the name", func(c *bloom.Config) { c.Name = "a}" }, "Name"},
		{"no items", func(c *bloom.Config) { c.Items = 0 }, "Items is 0"},
		{"negative items", func(c *bloom.Config) { c.Items = -1 }, "Items is -1"},
		{"rate 0", func(c *bloom.Config) { c.FalsePositives = 0 }, "FalsePositives is 0"},
		{"rate 1", func(c *bloom.Config) { c.FalsePositives = 1 }, "FalsePositives is 1"},
		{"rate NaN", func(c *bloom.Config) { c.FalsePositives = math.NaN() }, "FalsePositives is NaN"},
		{"short window", func(c *bloom.Config) { c.Window = time.Millisecond }, "Window is 1ms"},
		{"negative window", func(c *bloom.Config) { c.Window = -time.Hour }, "Window is -1h"},
		{"too large", func(c *bloom.Config) { c.Items = 1e9 }, "more than 512 MiB"},
		{"two generations too large", func(c *bloom.Config) { c.Items, c.Window = 3e8, time.Hour }, "more than 512 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := valid
			tt.change(&cfg)
			if _, err := bloom.New(g, cfg); err == nil || !strings.Contains(err.Error(), tt.words) {
				t.Errorf("error %v", err)
			}
		})
	}
	_, err := bloom.New(nil, bloom.Config{})
	for _, word := range []string{"Gate", "Name", "Items", "FalsePositives"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s is not among the faults: %v", word, err)
		}
	}
	largest := newFilter(t, g, bloom.Config{Name: "f", Items: 430_000_000, FalsePositives: 0.01})
	if n := largest.Bytes(); n < 530_000_000 || n > 512<<20 || largest.Hashes() != 6 {
		t.Errorf("%d bytes, %d hashes", n, largest.Hashes())
	}
}

func TestFilterItemFaults(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		ctx := t.Context()
		f := newFilter(t, g, bloom.Config{Name: "f", Items: 1000, FalsePositives: 0.01})
		for _, item := range []string{"", strings.Repeat("x", bloom.MaxItem+1)} {
			gatetest.Is(t, f.Add(ctx, "good", item), bloom.ErrItem, "an item of %d bytes", len(item))
			gatetest.Is(t, gatetest.Err(f.Test(ctx, item)), bloom.ErrItem, "an item of %d bytes", len(item))
		}
		gatetest.Equal(t, gatetest.Must(f.Stats(ctx))(t).Set, 0, "something was added")
		if err := f.Add(ctx, strings.Repeat("x", bloom.MaxItem)); err != nil {
			t.Errorf("the longest item: %v", err)
		}
	})
}

func TestFilterOfAnotherConfiguration(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		ctx := t.Context()
		f := newFilter(t, g, bloom.Config{Name: "f", Items: 10_000_000, FalsePositives: 0.01})
		noError(t, f.Add(ctx, "a"))
		other := newFilter(t, g, bloom.Config{Name: "f", Items: 20, FalsePositives: 0.01, Window: time.Hour})
		_, testErr := other.Test(ctx, "a")
		_, statsErr := other.Stats(ctx)
		for _, err := range []error{testErr, statsErr, other.Add(ctx, "b")} {
			if !errors.Is(err, bloom.ErrExists) || errors.Is(err, core.ErrMisconfigured) ||
				!strings.Contains(err.Error(), "6 of an item") {
				t.Errorf("another configuration: %v", err)
			}
		}
		if found, err := one(f.Test(ctx, "a")); !found || err != nil {
			t.Errorf("the filter has lost its item: %v", err)
		}
		noError(t, other.Reset(ctx))
		if isNew, err := one(other.TestAndAdd(ctx, "a")); !isNew || err != nil {
			t.Errorf("after Reset: %v, %v", isNew, err)
		}
		gatetest.Is(t, gatetest.Err(f.Test(ctx, "a")), bloom.ErrExists, "the older configuration")
	})
}

func TestFilterKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		items := numbered("in", 50)
		kept := newFilter(t, g, bloom.Config{Name: "kept", Items: 2_000_000, FalsePositives: 0.01})
		aging := newFilter(t, g, bloom.Config{Name: "aging", Items: 2_000_000, FalsePositives: 0.01, Window: time.Hour})
		for _, f := range []*bloom.Filter{kept, aging} {
			gatetest.Must(f.Test(ctx, items...))(t)
			if keys := client.Keys(ctx, s.Prefix+"*").Val(); len(keys) != 0 {
				t.Fatalf("a test made %q", keys)
			}
			noError(t, f.Add(ctx, items...))
			size := int64(0)
			for _, key := range client.Keys(ctx, s.Prefix+"*").Val() {
				ttl := client.PTTL(ctx, key).Val()
				if f == kept && ttl != -1 || f == aging && (ttl <= time.Hour || ttl > 2*time.Hour+2*time.Second) {
					t.Errorf("%s has PTTL %v", key, ttl)
				}
				if strings.Contains(key, ":e") || strings.Contains(key, ":o") {
					size += client.StrLen(ctx, key).Val()
				}
			}
			want := f.Bytes()
			if f == aging {
				want /= 2 // one generation
			}
			gatetest.Equal(t, size, want, "bytes of the bits")
			noError(t, f.Reset(ctx))
			if keys := client.Keys(ctx, s.Prefix+"*").Val(); len(keys) != 0 {
				t.Fatalf("Reset left %q", keys)
			}
		}
	})
}

// What Redis has lost is not mistaken for what was never added.
func TestFilterLosesPart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		client := s.Client(t)
		g := redisGate(t, client, core.Config{Prefix: s.Prefix})
		f := newFilter(t, g, bloom.Config{Name: "f", Items: 2_000_000, FalsePositives: 0.01})
		items := numbered("in", 100) // some in each part, except in one of 2^99 cases
		noError(t, f.Add(ctx, items...))
		for _, lost := range []string{":{f}:bf2:e1", ":{f}:bf2"} {
			gatetest.Need(t, client.Del(ctx, s.Prefix+lost).Val(), 1, "%q", client.Keys(ctx, s.Prefix+"*").Val())
			found, testErr := f.Test(ctx, items...)
			if count(found) != len(found) || len(found) == len(items) {
				t.Errorf("found %v", found)
			}
			_, statsErr := f.Stats(ctx)
			for _, err := range []error{testErr, statsErr, f.Add(ctx, items...)} {
				gatetest.Is(t, err, bloom.ErrLost, "without %s", lost)
			}
			noError(t, f.Reset(ctx))
			if isNew, err := f.TestAndAdd(ctx, items...); count(isNew) != len(items) || err != nil {
				t.Errorf("%d are new after Reset: %v", count(isNew), err)
			}
		}
	})
}

// While Redis has a part of a filter and not its record, no item seems never to have been added, also
// not those of parts that are lost too.
func TestFilterLosesRecordAndParts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, window := range map[string]time.Duration{"for ever": 0, "windows": time.Hour} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				client := s.Client(t)
				g := redisGate(t, client, core.Config{Prefix: s.Prefix})
				f := newFilter(t, g, bloom.Config{Name: "f", Items: 3_000_000, FalsePositives: 0.01, Window: window})
				items := numbered("in", 100) // miniredis copies a part for each bit
				noError(t, f.Add(ctx, items...))
				parts := client.Keys(ctx, s.Prefix+":{f}:bf2:*").Val()
				if len(parts) < 4 {
					t.Fatalf("only the parts %q", parts)
				}
				for _, key := range append(parts[1:], s.Prefix+":{f}:bf2") {
					gatetest.Need(t, client.Del(ctx, key).Val(), 1, "no key %s", key)
				}
				for _, item := range items {
					found, testErr := f.Test(ctx, item)
					isNew, addErr := f.TestAndAdd(ctx, item)
					if !errors.Is(testErr, bloom.ErrLost) || !errors.Is(addErr, bloom.ErrLost) || len(found)+len(isNew) > 0 {
						t.Fatalf("%s: found %v, %v; new %v, %v", item, found, testErr, isNew, addErr)
					}
				}
				noError(t, f.Reset(ctx))
				if isNew, err := f.TestAndAdd(ctx, items...); count(isNew) != len(items) || err != nil {
					t.Errorf("%d are new after Reset: %v", count(isNew), err)
				}
				// Of a filter that is lost as a whole nothing is known.
				for _, key := range client.Keys(ctx, s.Prefix+"*").Val() {
					client.Del(ctx, key)
				}
				if found, err := f.Test(ctx, items...); count(found) != 0 || len(found) != len(items) || err != nil {
					t.Errorf("found %v, %v", count(found), err)
				}
				if keys := client.Keys(ctx, s.Prefix+"*").Val(); len(keys) > 0 {
					t.Errorf("Test made %q", keys)
				}
			})
		})
	}
}

// A filter of many parts gets them a few at a time, and a Reset that failed frees them all later.
func TestFilterOfManyParts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	client := s.Client(t)
	g := redisGate(t, client, core.Config{Prefix: s.Prefix})
	f := newFilter(t, g, bloom.Config{Name: "f", Items: 30_000_000, FalsePositives: 0.01})
	items := numbered("in", 1000)
	if isNew, err := f.TestAndAdd(ctx, items...); count(isNew) != len(items) || err != nil {
		t.Fatalf("%d are new: %v", count(isNew), err)
	}
	if found, err := f.Test(ctx, items...); count(found) != len(items) || err != nil {
		t.Errorf("%d are found: %v", count(found), err)
	}
	parts := len(client.Keys(ctx, s.Prefix+":{f}:bf2:*").Val())
	if parts < 30 {
		t.Fatalf("%d parts", parts)
	}
	// A Reset that ends after its first step leaves the hash so.
	client.Del(ctx, s.Prefix+":{f}:bf2")
	client.HSet(ctx, s.Prefix+":{f}:bf2", "sweep", parts)
	small := newFilter(t, g, bloom.Config{Name: "f", Items: 10, FalsePositives: 0.01})
	if isNew, err := one(small.TestAndAdd(ctx, "a")); !isNew || err != nil {
		t.Errorf("after an interrupted Reset: %v, %v", isNew, err)
	}
	noError(t, small.Reset(ctx))
	if keys := client.Keys(ctx, s.Prefix+"*").Val(); len(keys) != 0 {
		t.Errorf("Reset left %q", keys)
	}
}

func TestFilterErrors(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	client := s.Client(t)
	var events []bloom.Event
	g := redisGate(t, client, core.Config{Prefix: s.Prefix, Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
		if e, ok := e.(*bloom.Event); ok {
			events = append(events, *e)
		}
	}})
	f := newFilter(t, g, bloom.Config{Name: "f", Items: 1000, FalsePositives: 0.01})
	noError(t, client.Set(ctx, s.Prefix+":{f}:bf2", "text", 0).Err())
	gatetest.Is(t, f.Add(ctx, "a"), core.ErrMisconfigured, "a key that holds something else")
	client.Del(ctx, s.Prefix+":{f}:bf2")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	gatetest.Is(t, f.Add(cancelled, "a"), context.Canceled, "a cancelled context")
	s.Stop()
	if err := f.Add(ctx, "a"); err == nil || errors.Is(err, core.ErrMisconfigured) {
		t.Errorf("a stopped server: %v", err)
	}
	s.Continue()
	if len(events) != 3 || events[0].Filter != f || events[0].Err == nil || events[2].Err == nil {
		t.Errorf("events %+v", events)
	}
	noError(t, g.Close(ctx))
	gatetest.Is(t, gatetest.Err(f.Test(ctx, "a")), core.ErrClosed, "a closed Gate")
}

func TestFilterOnCluster(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redistest.StartCluster(t, 3)
	g := redisGate(t, cluster.Client(t), core.Config{})
	for i := range 5 {
		f := newFilter(t, g, bloom.Config{Name: fmt.Sprint("f", i), Items: 3_000_000, FalsePositives: 0.01, Window: time.Hour})
		isNew, err := f.TestAndAdd(ctx, numbered("in", 1000)...)
		if err != nil || count(isNew) < 999 {
			t.Errorf("%d are new: %v", count(isNew), err)
		}
		worked(t, f.Reset(ctx))
	}
}

// Several processes add the same items, from several goroutines each. Each item is new once.
func TestFilterItemIsNewOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var n atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		f := newFilter(t, g, bloom.Config{Name: "shared", Items: 10_000, FalsePositives: 1e-9})
		for range 16 {
			wg.Go(func() {
				for _, item := range numbered("in", 200) {
					isNew, err := one(f.TestAndAdd(context.Background(), item))
					if err != nil {
						t.Error(err)
						return
					}
					if isNew {
						n.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	gatetest.Equal(t, n.Load(), 200, "of 200 items were new")
}
