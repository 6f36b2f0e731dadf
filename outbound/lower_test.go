package outbound_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// What a response tells to be left lowers what is left under a rule of its unit, once for any
// number of responses, and never raises it.
func TestRemainingLowers(t *testing.T) {
	for name, algorithm := range map[string]core.Algorithm{
		"token bucket":  core.TokenBucket{Rate: 1, Per: 24 * time.Hour, Burst: 100},
		"frozen":        gatetest.Frozen(100),
		"fixed window":  core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true},
		"small windows": core.SlidingWindow{Limit: 100, Window: 24 * time.Hour, Buckets: 24},
		"log":           core.SlidingLog{Windows: []core.Window{{Limit: 1000, Width: time.Hour}, {Limit: 100, Width: 24 * time.Hour}}},
		"calendar":      core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				told := "1000"
				u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("x-ratelimit-limit-requests", "1000")
					w.Header().Set("x-ratelimit-remaining-requests", told)
					w.Header().Set("x-ratelimit-remaining-tokens", "3")
				})
				policy := gatetest.Limited(t, "a", algorithm)
				lowered := int64(0)
				cfg := outbound.Config{
					Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost, Limit: "requests"}},
					Observe: func(_ context.Context, e core.Event) {
						if e, ok := e.(*outbound.LowerEvent); ok {
							if e.Err != nil || fmt.Sprint(e.Remaining) != told || e.Policy != policy {
								t.Errorf("%+v", e)
							}
							lowered += e.Spent
						}
					},
				}
				replicas := []*outbound.Transport{transport(t, cfg), transport(t, cfg)}
				key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
				left := func() int64 {
					return standing(t, g, policy, key).Remaining
				}
				for i, c := range []struct {
					told string
					left int64
				}{
					{"1000", 99}, {"98", 98}, // as the rule counts
					{"60", 60}, {"60", 59}, // the request after the first one is told the same
					{"70", 58},           // an older response
					{"-1", 57}, {"", 56}, // unknown
					{"40", 40}, {"1", 1}, {"0", 0},
				} {
					told = c.told
					if _, err := get(t, replicas[i%2], u.URL); err != nil {
						t.Fatal(err)
					}
					if n := left(); n != c.left {
						t.Errorf("response %d tells %q: %d left, want %d", i, told, n, c.left)
					}
				}
				if lowered != 37+15+38 {
					t.Errorf("%d units were spent for it", lowered)
				}
				_, err := get(t, replicas[0], u.URL)
				wantBusy(t, err, "a")
			})
		})
	}
}

// Where nothing is left until a reset, requests under the rule wait for that, whatever its algorithm is,
// and others do not. A limit that refills until its reset has units before, and a reset that is past
// tells nothing.
func TestNothingLeftUntilTheReset(t *testing.T) {
	github := func(reset time.Duration) []string {
		return []string{"X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", fmt.Sprint(time.Now().Add(reset).Unix())}
	}
	window := core.FixedWindow{Limit: 20, Window: time.Hour}
	bucket := core.TokenBucket{Rate: 2, Per: time.Second, Burst: 20}
	for name, c := range map[string]struct {
		rule    core.Algorithm
		limit   string
		headers []string
		waits   time.Duration // under the rule, until there is room
	}{
		"a window":                  {window, "requests", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8 * time.Second},
		"a bucket":                  {bucket, "requests", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8 * time.Second},
		"a bucket of one":           {core.TokenBucket{Rate: 2, Per: time.Second, Burst: 1}, "requests", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8 * time.Second},
		"a log":                     {core.AnyMinute(20), "requests", []string{"RateLimit", `"default";r=0;t=8`}, 0},
		"draft -11":                 {core.AnyMinute(20), "default", []string{"RateLimit", `"default";r=0;t=8`}, 8 * time.Second},
		"GitHub, a reset of now":    {window, "requests", github(0), 0},
		"GitHub, a reset that past": {window, "requests", github(-time.Minute), 0},
		"one left":                  {window, "requests", []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "8"}, 0},
		"OpenAI's bucket":           {bucket, "requests", []string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "8s"}, time.Second / 2},
		"no name":                   {window, "", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := core.NewManualClock(time.Now())
			g := gatetest.Memory(t, core.Config{Clock: clock.Now})
			u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(c.headers); i += 2 {
					w.Header().Set(c.headers[i], c.headers[i+1])
				}
			})
			tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "a", c.rule), Key: outbound.ByHost, Limit: c.limit,
				Skip: func(r *http.Request) bool { return r.URL.Path == "/other" },
			}}})
			if _, err := get(t, tr, u.URL); err != nil {
				t.Fatal(err)
			}
			if _, err := get(t, tr, u.URL+"/other"); err != nil {
				t.Error(err)
			}
			_, err := get(t, tr, u.URL)
			if c.waits == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			rule := "cooldown"
			if name == "OpenAI's bucket" {
				rule = "a"
			}
			if busy := wantBusy(t, err, rule); busy.After > c.waits || busy.After < c.waits-time.Second {
				t.Errorf("%+v, want %v", busy, c.waits)
			}
			clock.Advance(c.waits)
			if _, err := get(t, tr, u.URL); err != nil {
				t.Error(err)
			}
		})
	}
}

// Many responses that tell the same at the same time lower it once.
func TestRemainingLowersOnce(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		const together = 20
		var arrived sync.WaitGroup
		arrived.Add(together)
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			arrived.Done()
			arrived.Wait()
			w.Header().Set("x-ratelimit-remaining-requests", "50")
		})
		policy := gatetest.Limited(t, "a", gatetest.Frozen(100))
		tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost, Limit: "requests"}}})
		var done sync.WaitGroup
		for range together {
			done.Go(func() {
				if _, err := get(t, tr, u.URL); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
		d, err := g.Peek(t.Context(), core.Charge{Policy: policy, Key: key, Cost: core.NoCost})
		if err != nil || d.At(0).Remaining != 50 {
			t.Errorf("%d left, %v", d.At(0).Remaining, err)
		}
	})
}

// A count lowers the rule that names its limit, and no other one.
func TestRemainingLowersTheRuleThatNamesIt(t *testing.T) {
	for name, c := range map[string]struct {
		limits []string // of the rules, which count 1,000
		told   []string // names and values of headers
		left   []int64
	}{
		"OpenAI": {[]string{"", "tokens", "requests"}, []string{"X-Ratelimit-Remaining-Tokens", "7", "X-Ratelimit-Reset-Tokens", "2h"}, []int64{999, 7, 999}},
		"Anthropic": {[]string{"input-tokens", "output-tokens", "priority-input-tokens"}, []string{"Anthropic-Ratelimit-Input-Tokens-Remaining", "7",
			"Anthropic-Ratelimit-Output-Tokens-Remaining", "8", "Anthropic-Priority-Input-Tokens-Remaining", "9"}, []int64{7, 8, 9}},
		"Kong":             {[]string{"minute", "hour"}, []string{"X-Ratelimit-Remaining-Minute", "3", "X-Ratelimit-Remaining-Hour", "900"}, []int64{3, 900}},
		"Mistral":          {[]string{"req-minute"}, []string{"X-Ratelimit-Remaining-Req-Minute", "3"}, []int64{3}},
		"draft -11":        {[]string{"burst", "long"}, []string{"Ratelimit", `"Burst";r=70;t=12, "long";r=640`}, []int64{70, 640}},
		"draft -07":        {[]string{"requests"}, []string{"Ratelimit", "limit=100, remaining=40, reset=9"}, []int64{40}},
		"GitHub":           {[]string{"requests", "search"}, []string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "core"}, []int64{7, 999}},
		"GitHub, search":   {[]string{"requests", "search"}, []string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "search"}, []int64{999, 7}},
		"Discord":          {[]string{"requests"}, []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Bucket", "abcd"}, []int64{999}},
		"two rules of one": {[]string{"tokens", "tokens"}, []string{"X-Ratelimit-Remaining-Tokens", "7"}, []int64{7, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Memory(t, core.Config{})
			u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(c.told); i += 2 {
					w.Header().Set(c.told[i], c.told[i+1])
				}
			})
			var rules []outbound.Rule
			for i, limit := range c.limits {
				p := gatetest.Limited(t, fmt.Sprint("r", i), core.FixedWindow{Limit: 1000, Window: 24 * time.Hour, FromFirst: true})
				rules = append(rules, outbound.Rule{Policy: p, Key: outbound.ByHost, Limit: limit})
			}
			tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: rules})
			if _, err := get(t, tr, u.URL); err != nil {
				t.Fatal(err)
			}
			key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
			for i, want := range c.left {
				if left := standing(t, g, rules[i].Policy, key).Remaining; left != want {
					t.Errorf("rule %d: %d left, want %d", i, left, want)
				}
			}
		})
	}
}

// No count lowers what fills a leaky bucket, or two counters.
func TestRemainingLowersNoCounters(t *testing.T) {
	for name, a := range map[string]core.Algorithm{
		"counters": core.SlidingWindow{Limit: 100, Window: time.Hour}, "leaky bucket": core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 10},
	} {
		g := gatetest.Memory(t, core.Config{})
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Ratelimit-Remaining", "1") })
		p := gatetest.Limited(t, "a", a)
		tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: p, Key: outbound.ByHost, Limit: "requests"}}})
		if _, err := get(t, tr, u.URL); err != nil {
			t.Fatal(err)
		}
		key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
		if r := standing(t, g, p, key); r.Used != 1 {
			t.Errorf("%s: %d used", name, r.Used)
		}
	}
}
