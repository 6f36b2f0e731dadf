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
					Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}},
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

// Where nothing is left until a reset, a bucket that fills sooner waits for that. A limit that refills
// until its reset has units before.
func TestNothingLeftUntilTheReset(t *testing.T) {
	const perSecond, burst = 2, 20
	for name, c := range map[string]struct {
		headers []string
		owes    int64
	}{
		"a window":         {[]string{"X-RateLimit-Limit", "20", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8*perSecond - 1},
		"a part of a unit": {[]string{"RateLimit", `"default";r=0;t=1`}, 1},
		"draft -11":        {[]string{"RateLimit-Policy", `"default";q=20;w=10`, "RateLimit", `"default";r=0;t=8`}, 8*perSecond - 1},
		"one left":         {[]string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "8"}, -1},
		"OpenAI's bucket":  {[]string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "8s"}, 0},
		"no reset":         {[]string{"X-RateLimit-Remaining", "0"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := core.NewManualClock(time.Now())
			g := gatetest.Memory(t, core.Config{Clock: clock.Now})
			u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(c.headers); i += 2 {
					w.Header().Set(c.headers[i], c.headers[i+1])
				}
			})
			policy := gatetest.Limited(t, "a", core.TokenBucket{Rate: perSecond, Per: time.Second, Burst: burst})
			tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}}})
			key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
			for range 2 { // the second one was on its way
				if _, err := get(t, tr, u.URL); err != nil {
					t.Fatal(err)
				}
				clock.Advance(time.Hour)
				if _, err := get(t, tr, u.URL); err != nil {
					t.Fatal(err)
				}
				if r := standing(t, g, policy, key); r.Used != burst+c.owes {
					t.Errorf("%d used, want %d", r.Used, burst+c.owes)
				}
				clock.Advance(time.Hour)
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
		tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}}})
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

// A count of tokens lowers a rule on tokens, of several the one with the longest window, and none
// of another unit.
func TestRemainingLowersTheRuleOfItsUnit(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("x-ratelimit-remaining-tokens", "7")
			w.Header().Set("x-ratelimit-limit-tokens", "100")
		})
		rule := func(name string, per time.Duration, unit core.Unit) outbound.Rule {
			p := gatetest.Policy(t, core.PolicyConfig{Name: name, Algorithm: core.FixedWindow{Limit: 100, Window: per, FromFirst: true}, Unit: unit})
			return outbound.Rule{Policy: p, Key: outbound.ByHost, Cost: func(*http.Request) int64 { return 1 }}
		}
		rules := []outbound.Rule{
			rule("requests", time.Hour, core.UnitRequests), rule("short", time.Hour, core.UnitTokens),
			rule("long", 2*time.Hour, core.UnitTokens), rule("input", 3*time.Hour, core.UnitInputTokens),
		}
		tr := transport(t, outbound.Config{Base: base(t), Gate: g, Rules: rules})
		if _, err := get(t, tr, u.URL); err != nil {
			t.Fatal(err)
		}
		key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
		for i, want := range []int64{99, 99, 7, 99} {
			d, err := g.Peek(t.Context(), core.Charge{Policy: rules[i].Policy, Key: key, Cost: core.NoCost})
			if err != nil || d.At(0).Remaining != want {
				t.Errorf("%s: %d left, want %d, %v", rules[i].Policy.Name(), d.At(0).Remaining, want, err)
			}
		}
	})
}

// A count lowers a rule of its own time, and none of a longer one. If a response tells of several
// limits, each lowers its own.
func TestRemainingLowersTheRuleOfItsTime(t *testing.T) {
	fixed := func(limit int64, per time.Duration) core.Algorithm {
		return core.FixedWindow{Limit: limit, Window: per, FromFirst: true}
	}
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		unit  core.Unit
		rules []core.Algorithm
		told  []string // names and values of headers
		left  []int64
	}{
		"Groq, tokens of a minute": {core.UnitTokens, []core.Algorithm{fixed(12_000, time.Minute), fixed(100_000, day)},
			[]string{"X-Ratelimit-Limit-Tokens", "12000", "X-Ratelimit-Remaining-Tokens", "5000", "X-Ratelimit-Reset-Tokens", "7.66s"}, []int64{5000, 99_999}},
		"Groq, tokens of a minute and a bucket of a day": {core.UnitTokens, []core.Algorithm{core.TokenBucket{Rate: 100_000, Per: day, Burst: 10_000}},
			[]string{"X-Ratelimit-Limit-Tokens", "12000", "X-Ratelimit-Remaining-Tokens", "7", "X-Ratelimit-Reset-Tokens", "59.97s"}, []int64{9999}},
		"Groq, tokens of a minute and the same bucket": {core.UnitTokens, []core.Algorithm{core.TokenBucket{Rate: 1, Per: 864 * time.Millisecond, Burst: 10_000}},
			[]string{"X-Ratelimit-Limit-Tokens", "12000", "X-Ratelimit-Remaining-Tokens", "7", "X-Ratelimit-Reset-Tokens", "59.97s"}, []int64{9999}},
		"a rule above the limit": {core.UnitRequests, []core.Algorithm{fixed(5000, time.Minute)},
			[]string{"X-Ratelimit-Limit", "500", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "60"}, []int64{0}},
		"a bucket above the limit": {core.UnitRequests, []core.Algorithm{core.TokenBucket{Rate: 10, Per: 40 * time.Hour, Burst: 10}},
			[]string{"X-Ratelimit-Limit", "4", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "86400"}, []int64{0}},
		"a bucket of the whole limit, at the end of the window": {core.UnitRequests, []core.Algorithm{core.TokenBucket{Rate: 50, Per: 50 * time.Hour, Burst: 50}},
			[]string{"X-Ratelimit-Limit", "50", "X-Ratelimit-Remaining", "7", "X-Ratelimit-Reset", "60"}, []int64{7}},
		"no limit, and two counters": {core.UnitRequests, []core.Algorithm{core.SlidingWindow{Limit: 100, Window: time.Minute}, fixed(1000, time.Hour)},
			[]string{"X-Ratelimit-Remaining", "7"}, []int64{99, 7}},
		"no limit, and a leaky bucket": {core.UnitRequests, []core.Algorithm{core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 10}, fixed(1000, 2*time.Hour)},
			[]string{"X-Ratelimit-Remaining", "7"}, []int64{9, 7}},
		"no limit, and a reset": {core.UnitRequests, []core.Algorithm{fixed(10_000, day), fixed(1000, time.Hour), fixed(100, time.Minute)},
			[]string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Reset", "600"}, []int64{9999, 7, 99}},
		"no limit, and a reset beyond all rules": {core.UnitRequests, []core.Algorithm{fixed(100, time.Minute), fixed(1000, time.Hour)},
			[]string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Reset", "7200"}, []int64{99, 7}},
		"Groq, requests of a day": {core.UnitRequests, []core.Algorithm{fixed(30, time.Minute), fixed(14_400, day)},
			[]string{"X-Ratelimit-Limit-Requests", "14400", "X-Ratelimit-Remaining-Requests", "7", "X-Ratelimit-Reset-Requests", "2m59.56s"}, []int64{29, 7}},
		"Kong": {core.UnitRequests, []core.Algorithm{fixed(100, time.Minute), fixed(1000, time.Hour)},
			[]string{"X-Ratelimit-Remaining-Minute", "3", "X-Ratelimit-Remaining-Hour", "900"}, []int64{3, 900}},
		"Kong, with a rule of another time": {core.UnitRequests, []core.Algorithm{fixed(10_000, day)},
			[]string{"X-Ratelimit-Remaining-Minute", "3", "X-Ratelimit-Remaining-Hour", "900"}, []int64{9999}},
		"Kong, less is left of an hour than of the rule": {core.UnitRequests, []core.Algorithm{fixed(100, time.Minute)},
			[]string{"X-Ratelimit-Remaining-Hour", "3"}, []int64{3}},
		"a month": {core.UnitRequests, []core.Algorithm{fixed(10, day), core.Calendar{Limit: 1000, Every: core.PeriodMonth, In: time.UTC}},
			[]string{"X-Ratelimit-Remaining-Month", "500"}, []int64{9, 500}},
		"draft -11": {core.UnitRequests, []core.Algorithm{fixed(100, time.Minute), fixed(1000, day)},
			[]string{"Ratelimit", `"burst";r=70;t=12, "long";r=640`, "Ratelimit-Policy", `"burst";q=100;w=60, "long";q=1000;w=86400`}, []int64{70, 640}},
		"draft -11 without policies": {core.UnitRequests, []core.Algorithm{fixed(1000, day), fixed(100, time.Minute)},
			[]string{"Ratelimit", `"burst";r=5;t=12, "day";r=640`}, []int64{640, 5}},
		"Brave": {core.UnitRequests, []core.Algorithm{fixed(15_000, 30*day)},
			[]string{"X-Ratelimit-Limit", "1, 15000", "X-Ratelimit-Policy", "1;w=1, 15000;w=2592000", "X-Ratelimit-Remaining", "0, 14523",
				"X-Ratelimit-Reset", "1, 1234567"}, []int64{14_523}},
		"WHOOP": {core.UnitRequests, []core.Algorithm{fixed(100, time.Minute), fixed(150, day)},
			[]string{"X-Ratelimit-Limit", "100, 100;window=60, 150;window=86400", "X-Ratelimit-Remaining", "7"}, []int64{7, 149}},
		"GitHub, a bucket": {core.UnitRequests, []core.Algorithm{core.TokenBucket{Rate: 5000, Per: 5000 * time.Hour, Burst: 50}},
			[]string{"X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "core"}, []int64{7}},
		"GitHub, search": {core.UnitRequests, []core.Algorithm{fixed(50, time.Hour)},
			[]string{"X-Ratelimit-Limit", "30", "X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "search", "X-Github-Request-Id", "1"}, []int64{49}},
		"Azure DevOps": {core.UnitRequests, []core.Algorithm{fixed(50, time.Hour)},
			[]string{"X-Ratelimit-Limit", "200", "X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "Service/Threshold"}, []int64{49}},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Memory(t, core.Config{})
			u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for i := 0; i < len(c.told); i += 2 {
					w.Header().Set(c.told[i], c.told[i+1])
				}
			})
			var rules []outbound.Rule
			for i, a := range c.rules {
				p := gatetest.Policy(t, core.PolicyConfig{Name: fmt.Sprint("r", i), Algorithm: a, Unit: c.unit})
				rule := outbound.Rule{Policy: p, Key: outbound.ByHost, Cost: func(*http.Request) int64 { return 1 }}
				rules = append(rules, rule)
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
