package core_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// recordLayouts makes TestStatesOfTheOlderBuild write what it compares: run it in a checkout of the older
// build, and copy the file.
var recordLayouts = flag.Bool("record-layouts", false, "write testdata/layouts.json")

const recorded = "testdata/layouts.json"

// layout is what one history leaves in Redis: the keys by name, and their contents.
type layout map[string][]string

// histories are the kinds of states, and what makes one of each.
var histories = []struct {
	name string
	play func(t *testing.T, g *core.Gate, c *core.ManualClock)
}{
	{"token bucket", spends(core.TokenBucket{Rate: 7, Per: time.Minute, Burst: 20})},
	{"token bucket that never refills", spends(frozen(20))},
	{"leaky bucket", spends(core.LeakyBucket{Rate: 7, Per: time.Minute, Capacity: 20})},
	{"fixed window", spends(core.FixedWindow{Limit: 20, Window: time.Minute})},
	{"fixed window from the first charge", spends(
		core.FixedWindow{Limit: 20, Window: time.Minute, FromFirst: true})},
	{"sliding window", spends(core.SlidingWindow{Limit: 20, Window: time.Minute})},
	{"sliding window in buckets", spends(
		core.SlidingWindow{Limit: 20, Window: time.Minute, Buckets: 10})},
	{"sliding log", spends(core.SlidingLog{Windows: []core.Window{{Limit: 9, Width: time.Minute}}})},
	{"calendar", spends(core.Calendar{Limit: 20, Every: core.PeriodMonth, In: time.UTC})},
	{"block", spends(core.Block{Strikes: 2, Within: time.Minute, For: time.Hour})},
	{"holds", func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		g.NumberHolds()
		limit := core.FixedWindow{Limit: 20, Window: time.Hour}
		p := newPolicy(t, core.PolicyConfig{Name: "held", Algorithm: limit, Hold: time.Hour})
		for range 2 {
			r, _, err := g.Reserve(t.Context(), 0, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 3})
			noError(t, err)
			t.Cleanup(func() { r.Abandon() })
			c.Advance(time.Second)
		}
	}},
	{"adjustments and raises", func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		p := newPolicy(t, core.PolicyConfig{Name: "month", Raisable: true,
			Algorithm: core.Calendar{Limit: 20, Every: core.PeriodMonth, In: time.UTC}})
		for i, a := range []core.Adjustment{
			{Units: 5}, {Raise: 10, Until: c.Now().Add(time.Hour)}, {Units: -2},
		} {
			a.Policy, a.Key, a.ID = p, newKey(t, "k"), fmt.Sprint("change", i)
			gatetest.Must(g.Adjust(t.Context(), a))(t)
			c.Advance(time.Second)
		}
	}},
	{"semaphore", func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		s := gatetest.Must(semaphore.New(g, semaphore.Config{Name: "streams", TTL: time.Minute}))(t)
		r := semaphore.Request{Caps: []semaphore.Cap{
			{Key: newKey(t, "k"), Limit: 5}, {Key: newKey(t, "k", "user"), Limit: 2},
		}}
		for range 2 {
			l := gatetest.Must(s.Acquire(t.Context(), r))(t)
			t.Cleanup(func() { _ = l.Release(t.Context()) })
			c.Advance(time.Second)
		}
	}},
	{"mutex", func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		m := gatetest.Must(semaphore.NewMutex(g, semaphore.MutexConfig{Name: "lock", TTL: time.Minute}))(t)
		l := gatetest.Must(m.TryLock(t.Context(), newKey(t, "k")))(t)
		t.Cleanup(func() { _ = l.Release(t.Context()) })
	}},
	{"once", func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		o, err := once.New(g, once.Config{Name: "paid", Window: time.Hour})
		noError(t, err)
		err = o.Do(t.Context(), newKey(t, "k"), 0, func(context.Context) error { return nil })
		noError(t, err)
	}},
	{"filter", func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		f := gatetest.Must(bloom.New(g, bloom.Config{Name: "seen", Items: 100, FalsePositives: 0.01}))(t)
		noError(t, f.Add(t.Context(), "item"))
	}},
}

// spends plays a fixed history of charges of one key and the refund of one of them.
func spends(a core.Algorithm) func(t *testing.T, g *core.Gate, c *core.ManualClock) {
	return func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		charge := core.Charge{Policy: limited(t, "p", a), Key: newKey(t, "k", "inner"), Cost: 3}
		decide(t, g, charge)
		c.Advance(1_234_567 * time.Microsecond)
		charge.Cost = 2
		r, d, err := g.Reserve(t.Context(), 0, charge)
		noError(t, err)
		c.Advance(2 * time.Second)
		if d.Allowed {
			noError(t, r.Settle(t.Context(), 1))
		}
	}
}

// Processes of the older build and of this one count together, whichever comes first, if both write
// the same names and bytes. docs/reference/upgrading.md says of each state whether they do.
func TestStatesOfTheOlderBuild(t *testing.T) {
	older := make(map[string]layout)
	if text, err := os.ReadFile(recorded); err != nil && !*recordLayouts {
		t.Fatal(err)
	} else if err == nil {
		noError(t, json.Unmarshal(text, &older))
	}
	page := gatetest.Must(os.ReadFile("../docs/reference/upgrading.md"))(t)
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for i, h := range histories {
			t.Run(h.name, func(t *testing.T) {
				var prefix string
				for _, n := range []int{50 + i, i} { // first with scripts that are missing, which renews leases
					c := newClock()
					prefix = fmt.Sprint(s.Prefix, n)
					g := redisGate(t, s.Client(t), core.Config{Prefix: prefix, DisableDenialCache: true})
					g.InjectClock(micros(c))
					h.play(t, g, c)
				}
				got := readLayout(t, s.Client(t), prefix)
				if *recordLayouts {
					older[h.name] = got
					return
				}
				count := "together"
				if !maps.EqualFunc(got, older[h.name], slices.Equal[[]string]) {
					count = "apart"
				}
				if row := "\n| " + h.name + " | " + count + " |"; !strings.Contains(string(page), row) {
					t.Errorf("docs/reference/upgrading.md lacks %q: this build wrote %q, the older one %q",
						row, got, older[h.name])
				}
			})
		}
	})
	if *recordLayouts {
		text := gatetest.Must(json.MarshalIndent(older, "", " "))(t)
		noError(t, os.WriteFile(recorded, append(text, '\n'), 0o644))
	}
}

// ids are those of leases and channels, which differ in each run.
var ids = regexp.MustCompile(`[A-Z2-7]{26}`)

// readLayout reads all keys below a prefix, except those of slots that nobody holds: the older build
// reads them as leases that have ended, and writes nothing instead.
func readLayout(t *testing.T, client redis.UniversalClient, prefix string) layout {
	t.Helper()
	ctx := t.Context()
	l := make(layout)
	for _, key := range redistest.Keys(t, client, prefix+":*") {
		kind := gatetest.Must(client.Type(ctx, key).Result())(t)
		var items []string
		switch kind {
		case "string":
			items = append(items, client.Get(ctx, key).Val())
		case "hash":
			for field, value := range client.HGetAll(ctx, key).Val() {
				items = append(items, field+" = "+value)
			}
		case "zset":
			for _, z := range client.ZRangeWithScores(ctx, key, 0, -1).Val() {
				score := strconv.FormatFloat(z.Score, 'f', -1, 64)
				items = append(items, fmt.Sprint(z.Member, " at ", score))
			}
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
		for i, item := range items {
			item = ids.ReplaceAllString(strings.ReplaceAll(item, prefix, "prefix"), "id")
			items[i] = strconv.QuoteToASCII(item)
		}
		slices.Sort(items)
		l[strings.TrimPrefix(key, prefix)] = append([]string{kind}, items...)
	}
	return l
}
