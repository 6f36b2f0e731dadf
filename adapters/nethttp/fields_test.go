package nethttp_test

import (
	"cmp"
	"net/http"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// told is what the headers state about one policy, parsed by another implementation of structured
// fields (RFC 9651).
type told map[string]int64

func tells(t rapid.TB, r *http.Response, field string) map[string]told {
	t.Helper()
	values := r.Header.Values(field)
	all := make(map[string]told)
	if len(values) == 0 {
		return all
	}
	list, err := httpsfv.UnmarshalList(values)
	if err != nil {
		t.Fatalf("%s: %v: %v", field, values, err)
	}
	for _, member := range list {
		item, ok := member.(httpsfv.Item)
		if !ok {
			t.Fatalf("%s: %T", field, member)
		}
		name, ok := item.Value.(string)
		if !ok || all[name] != nil {
			t.Fatalf("%s: %v", field, values)
		}
		all[name] = make(told)
		for _, parameter := range item.Params.Names() {
			value, _ := item.Params.Get(parameter)
			n, ok := value.(int64)
			if !ok {
				t.Fatalf("%s: %s is %v", field, parameter, value)
			}
			all[name][parameter] = n
		}
	}
	return all
}

// retryAfter returns the seconds of Retry-After, or 0 if it is not set.
func retryAfter(t rapid.TB, r *http.Response) int64 {
	t.Helper()
	values := r.Header.Values("Retry-After")
	if len(values) == 0 {
		return 0
	}
	item, err := httpsfv.UnmarshalItem(values)
	n, ok := item.Value.(int64)
	if err != nil || !ok || n < 1 || len(values) > 1 {
		t.Fatalf("Retry-After: %v: %v", values, err)
	}
	return n
}

// Every number in the headers is true. The client can spend what is left and no more, more is
// available in t seconds, and a refused request passes after Retry-After and not a second earlier.
func TestNumbersInHeadersAreExact(t *testing.T) {
	limits := map[string]core.Algorithm{
		"bucket":   core.TokenBucket{Rate: 7, Per: 10 * time.Second, Burst: 12},
		"fast":     core.TokenBucket{Rate: 300, Per: time.Second, Burst: 20},
		"leaky":    core.LeakyBucket{Rate: 3, Per: time.Second, Capacity: 9},
		"fixed":    core.FixedWindow{Limit: 10, Window: 10 * time.Second},
		"sliding":  core.SlidingWindow{Limit: 10, Window: 20 * time.Second},
		"precise":  core.SlidingWindow{Limit: 10, Window: 20 * time.Second, Buckets: 8},
		"log":      core.SlidingLog{Windows: []core.Window{{Limit: 4, Width: time.Second}, {Limit: 20, Width: time.Minute}}},
		"calendar": core.Calendar{Limit: 15, Every: core.PeriodMinute, In: time.UTC},
		"gift":     core.TokenBucket{Burst: 30},
	}
	// The approximations are whole up to a window or a small window later. A log states its
	// tightest window.
	later := map[string]bool{"sliding": true, "precise": true, "log": true}
	var names []string
	for name := range limits {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		clock := core.NewManualClock(time.Unix(1_800_000_000, 123_456_000))
		gate := core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
		charges := make(map[string]core.Charge)
		key := core.Must(core.NewKey("all"))
		cfg := nethttp.Config{Gate: gate}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID).Draw(t, "policies") {
			p := core.Must(core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limits[name]}))
			cost := rapid.Int64Range(1, 4).Draw(t, "cost")
			charges[name] = core.Charge{Policy: p, Key: key, Cost: cost}
			cfg.Rules = append(cfg.Rules, nethttp.Rule{Policy: p, Key: keyfunc.Must(keyfunc.Static("all")), Cost: func(*http.Request) int64 { return cost }})
		}
		g := core.Must(nethttp.NewGuard(cfg))
		h := g.Handler(http.HandlerFunc(ok))
		peek := func(charges ...core.Charge) core.Decision {
			return gatetest.Must(gate.Peek(t.Context(), charges...))(t)
		}
		for range rapid.IntRange(1, 12).Draw(t, "requests") {
			clock.Advance(time.Duration(rapid.Int64Range(0, 3e6).Draw(t, "pause")) * time.Microsecond)
			r := get(h)
			quota, left := tells(t, r, "RateLimit-Policy"), tells(t, r, "RateLimit")
			if len(quota) != len(charges) || len(left) != len(charges) {
				t.Fatalf("%v, %v", r.Header, charges)
			}
			after := func(wait time.Duration, charges ...core.Charge) core.Decision {
				clock.Advance(wait)
				defer clock.Advance(-wait)
				return peek(charges...)
			}
			for name, c := range charges {
				says := left[name]
				c.Cost = cmp.Or(says["r"], core.NoCost)
				if d := peek(c); !d.Allowed {
					t.Errorf("%s: %d are not left", name, says["r"])
				}
				c.Cost = says["r"] + 1
				if d := peek(c); d.Allowed {
					t.Errorf("%s: %d are left", name, says["r"]+1)
				}
				in, some := says["t"]
				if d := after(time.Duration(in)*time.Second, c); some && !d.At(0).Known || some && d.At(0).Remaining <= says["r"] {
					t.Errorf("%s: no more than %d in %d s", name, says["r"], in)
				}
				if d := after(1000*time.Hour, c); !some && d.At(0).Remaining > says["r"] {
					t.Errorf("%s: no t, and more becomes available", name)
				}
				d := peek(c)
				if q := quota[name]["q"]; name != "fast" && q != d.At(0).Limit {
					t.Errorf("%s: q=%d", name, q)
				}
				w, some := quota[name]["w"]
				d = after(time.Duration(w)*time.Second, c)
				if some != (name != "gift") || some && d.At(0).Used > 0 && !later[name] {
					t.Errorf("%s: not refilled in %d s", name, w)
				}
			}
			if wait := retryAfter(t, r); r.StatusCode == http.StatusTooManyRequests {
				var again []core.Charge
				for _, c := range charges {
					again = append(again, c)
				}
				if wait == 0 && after(1000*time.Hour, again...).Allowed {
					t.Error("no Retry-After, and waiting helps")
				}
				if wait > 0 && !after(time.Duration(wait)*time.Second, again...).Allowed {
					t.Errorf("denied after %d s", wait)
				}
				if wait > 1 && after(time.Duration(wait-1)*time.Second, again...).Allowed {
					t.Errorf("allowed before %d s", wait)
				}
			}
		}
	})
}

// The numbers agree with what Redis itself answers a moment later.
func TestFieldsAreTrueOnRedis(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		gate := core.Must(core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: generous}))
		key := core.Must(core.NewKey("all"))
		day := 24 * time.Hour
		for name, limit := range map[string]core.Algorithm{
			"bucket": core.TokenBucket{Rate: 10, Per: day, Burst: 10}, "leaky": core.LeakyBucket{Rate: 10, Per: day, Capacity: 10},
			"first": core.FixedWindow{Limit: 10, Window: day, FromFirst: true}, "precise": core.SlidingWindow{Limit: 10, Window: day, Buckets: 4},
			"log": core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: day}}},
		} {
			p := policy(t, core.PolicyConfig{Name: name, Algorithm: limit})
			cost := func(*http.Request) int64 { return 3 }
			h := guard(t, nethttp.Config{Gate: gate, LongestWait: core.Never, Rules: []nethttp.Rule{{Policy: p, Key: keyfunc.Must(keyfunc.Static("all")), Cost: cost}}}).Handler(http.HandlerFunc(ok))
			for want := int64(7); ; want -= 3 {
				r := get(h)
				left, wait := tells(t, r, "RateLimit")[name], retryAfter(t, r)
				d := gatetest.Must(gate.Peek(t.Context(), core.Charge{Policy: p, Key: key, Cost: 3}))(t)
				says := d.At(0)
				if wait > 0 {
					want += 3
				}
				if left["r"] != want || says.Remaining != want {
					t.Errorf("%s: r=%d, want %d; Redis says %d", name, left["r"], want, says.Remaining)
				}
				// The peek is later, so its wait is shorter.
				if in := time.Duration(left["t"]) * time.Second; in < says.NextAfter || in > says.NextAfter+generous {
					t.Errorf("%s: t=%d, Redis says %v", name, left["t"], says.NextAfter)
				}
				if wait == 0 {
					continue
				}
				if in := time.Duration(wait) * time.Second; in < says.RetryAfter || in > says.RetryAfter+generous {
					t.Errorf("%s: Retry-After %d, Redis says %v", name, wait, says.RetryAfter)
				}
				break
			}
		}
	})
}

// RateLimit-Policy states the same quota for a log of several windows in every response, also while
// Redis is down.
func TestLogHasOneQuota(t *testing.T) {
	const want = `"p";q=5;w=10`
	log := rules(t, core.PolicyConfig{Name: "p", Algorithm: core.SlidingLog{Windows: []core.Window{
		{Limit: 3, Width: time.Second}, {Limit: 5, Width: 10 * time.Second},
	}}})
	clock := newClock()
	for name, gate := range map[string]*core.Gate{"memory": memory(t, clock), "Redis is down": dead(t)} {
		h := served(t, nethttp.Config{Gate: gate, Rules: log})
		for i := range 12 {
			r := get(h)
			if got := r.Header.Get("RateLimit-Policy"); got != want {
				t.Errorf("%s, response %d, %d: %s", name, i, r.StatusCode, got)
			}
			if i%3 == 2 {
				clock.advance(time.Second)
			}
		}
	}
}
