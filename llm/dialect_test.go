package llm_test

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// spends returns a rule by the client's address that charges cost.
func spends(t *testing.T, cost int64, cfg core.PolicyConfig) nethttp.Rule {
	t.Helper()
	return nethttp.Rule{Policy: policyOf(t, cfg), Key: keyfunc.RemoteIP(), Cost: func(*http.Request) int64 { return cost }}
}

// modelLimits returns the headers by which model APIs state limits, without what their names have
// in common. It checks their syntax.
func modelLimits(t *testing.T, r *http.Response) map[string]string {
	t.Helper()
	limits := make(map[string]string)
	for name, values := range r.Header {
		vendor, rest, found := strings.Cut(name, "-Ratelimit-")
		if !found {
			continue
		}
		value, err := strings.Join(values, " | "), error(nil)
		switch {
		case !strings.Contains(rest, "Reset"):
			_, err = strconv.ParseInt(value, 10, 64)
		case vendor == "X":
			_, err = time.ParseDuration(value)
		default:
			_, err = time.Parse(time.RFC3339, value)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		limits[strings.ToLower(rest)] = value
	}
	return limits
}

// In a test bubble it is midnight of 1 January 2000.
func TestModelHeaders(t *testing.T) {
	requests := core.PolicyConfig{Name: "rpm", Algorithm: core.PerMinute(10)}
	tokens := core.PolicyConfig{Name: "tpm", Algorithm: core.PerMinute(1000), Unit: core.UnitTokens}
	input := core.PolicyConfig{Name: "itpm", Algorithm: core.PerMinute(2000), Unit: core.UnitInputTokens}
	output := core.PolicyConfig{Name: "otpm", Algorithm: core.PerMinute(500), Unit: core.UnitOutputTokens}
	small := core.PolicyConfig{Name: "small", Algorithm: core.PerMinute(200), Unit: core.UnitOutputTokens}
	money := core.PolicyConfig{Name: "money", Algorithm: core.PerHour(150), Unit: core.UnitMicroDollars}
	gift := core.PolicyConfig{Name: "gift", Algorithm: core.TokenBucket{Burst: 200}, Unit: core.UnitTokens}
	shadow := core.PolicyConfig{Name: "new", Algorithm: core.PerMinute(50), Unit: core.UnitTokens, Shadow: true}
	fast := core.PolicyConfig{Name: "fast", Algorithm: core.TokenBucket{Rate: 7, Per: time.Second, Burst: 7}}
	hourly := core.PolicyConfig{Name: "hourly", Algorithm: core.PerHour(10)}
	none := core.PolicyConfig{Name: "none", Algorithm: core.DenyAll{}, Unit: core.UnitTokens}
	free := core.PolicyConfig{Name: "free", Algorithm: core.Unlimited{}, Unit: core.UnitTokens}
	type limits map[string]string
	for _, tt := range []struct {
		name      string
		policies  []core.PolicyConfig // each request costs 1 request, and 150 of the others
		before    int
		status    int
		openAI    limits
		anthropic limits
	}{
		{
			"requests", []core.PolicyConfig{requests}, 0, 200,
			limits{"limit-requests": "10", "remaining-requests": "9", "reset-requests": "6s"},
			limits{"requests-limit": "10", "requests-remaining": "9", "requests-reset": "2000-01-01T00:00:06Z"},
		},
		{
			"tokens", []core.PolicyConfig{tokens}, 0, 200,
			limits{"limit-tokens": "1000", "remaining-tokens": "850", "reset-tokens": "9s"},
			limits{"tokens-limit": "1000", "tokens-remaining": "850", "tokens-reset": "2000-01-01T00:00:09Z"},
		},
		{
			"input tokens", []core.PolicyConfig{input}, 0, 200,
			limits{"limit-tokens": "2000", "remaining-tokens": "1850", "reset-tokens": "4.5s"},
			limits{"input-tokens-limit": "2000", "input-tokens-remaining": "1850", "input-tokens-reset": "2000-01-01T00:00:05Z"},
		},
		{
			"output tokens", []core.PolicyConfig{output}, 0, 200,
			limits{"limit-tokens": "500", "remaining-tokens": "350", "reset-tokens": "18s"},
			limits{"output-tokens-limit": "500", "output-tokens-remaining": "350", "output-tokens-reset": "2000-01-01T00:00:18Z"},
		},
		{
			"all units", []core.PolicyConfig{money, input, output, tokens, requests}, 0, 200,
			limits{
				"limit-requests": "10", "remaining-requests": "9", "reset-requests": "6s",
				"limit-tokens": "500", "remaining-tokens": "350", "reset-tokens": "18s",
			},
			limits{
				"requests-limit": "10", "requests-remaining": "9", "requests-reset": "2000-01-01T00:00:06Z",
				"tokens-limit": "1000", "tokens-remaining": "850", "tokens-reset": "2000-01-01T00:00:09Z",
				"input-tokens-limit": "2000", "input-tokens-remaining": "1850", "input-tokens-reset": "2000-01-01T00:00:05Z",
				"output-tokens-limit": "500", "output-tokens-remaining": "350", "output-tokens-reset": "2000-01-01T00:00:18Z",
			},
		},
		{"money", []core.PolicyConfig{money}, 0, 200, nil, nil},
		{"money denies", []core.PolicyConfig{money, requests}, 1, 429,
			limits{"limit-requests": "10", "remaining-requests": "9", "reset-requests": "6s"},
			limits{"requests-limit": "10", "requests-remaining": "9", "requests-reset": "2000-01-01T00:00:06Z"}},
		{"never refills", []core.PolicyConfig{gift}, 0, 200,
			limits{"limit-tokens": "200", "remaining-tokens": "50"}, limits{"tokens-limit": "200", "tokens-remaining": "50"}},
		{"shadow", []core.PolicyConfig{shadow, tokens}, 0, 200,
			limits{"limit-tokens": "1000", "remaining-tokens": "850", "reset-tokens": "9s"},
			limits{"tokens-limit": "1000", "tokens-remaining": "850", "tokens-reset": "2000-01-01T00:00:09Z"}},
		{"unlimited", []core.PolicyConfig{free}, 0, 200, nil, nil},
		{"deny all", []core.PolicyConfig{none, tokens}, 0, 403, nil, nil},
		{"less than a second", []core.PolicyConfig{fast}, 0, 200,
			limits{"limit-requests": "7", "remaining-requests": "6", "reset-requests": "143ms"},
			limits{"requests-limit": "7", "requests-remaining": "6", "requests-reset": "2000-01-01T00:00:01Z"}},
		{"minutes", []core.PolicyConfig{hourly}, 0, 200,
			limits{"limit-requests": "10", "remaining-requests": "9", "reset-requests": "6m0s"},
			limits{"requests-limit": "10", "requests-remaining": "9", "requests-reset": "2000-01-01T00:06:00Z"}},
		{"the least part left", []core.PolicyConfig{requests, hourly, fast}, 0, 200,
			limits{"limit-requests": "7", "remaining-requests": "6", "reset-requests": "143ms"},
			limits{"requests-limit": "7", "requests-remaining": "6", "requests-reset": "2000-01-01T00:00:01Z"}},
		{"tokens deny", []core.PolicyConfig{requests, tokens, output}, 3, 429,
			limits{
				"limit-requests": "10", "remaining-requests": "7", "reset-requests": "18s",
				"limit-tokens": "500", "remaining-tokens": "50", "reset-tokens": "54s",
			},
			limits{
				"requests-limit": "10", "requests-remaining": "7", "requests-reset": "2000-01-01T00:00:18Z",
				"tokens-limit": "1000", "tokens-remaining": "550", "tokens-reset": "2000-01-01T00:00:27Z",
				"output-tokens-limit": "500", "output-tokens-remaining": "50", "output-tokens-reset": "2000-01-01T00:00:54Z",
			}},
		{"the longest denial", []core.PolicyConfig{small, gift}, 1, 429,
			limits{"limit-tokens": "200", "remaining-tokens": "50"},
			limits{
				"tokens-limit": "200", "tokens-remaining": "50",
				"output-tokens-limit": "200", "output-tokens-remaining": "50", "output-tokens-reset": "2000-01-01T00:00:45Z",
			}},
	} {
		for dialect, want := range map[nethttp.Dialect]limits{
			llm.OpenAI{}: tt.openAI, llm.Anthropic{}: tt.anthropic,
		} {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cfg := nethttp.Config{Gate: memory(t, aClock()), Dialect: dialect}
					for _, p := range tt.policies {
						cost := int64(150)
						if p.Unit == core.UnitRequests {
							cost = 1
						}
						cfg.Rules = append(cfg.Rules, spends(t, cost, p))
					}
					h := guard(t, cfg).Handler(http.HandlerFunc(ok))
					for range tt.before {
						get(h)
					}
					r := get(h)
					if got := modelLimits(t, r); r.StatusCode != tt.status || !maps.Equal(got, want) {
						t.Errorf("%d\n%v, want %d\n%v", r.StatusCode, got, tt.status, want)
					}
				})
			})
		}
	}
}

// A time is rounded up to seconds.
func TestResetTimeIsNotEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(300 * time.Millisecond)
		h := guard(t, nethttp.Config{
			Gate: memory(t, aClock()), Dialect: llm.Anthropic{}, Rules: []nethttp.Rule{
				spends(t, 1, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Rate: 1, Per: 700 * time.Millisecond, Burst: 9}}),
				spends(t, 1, core.PolicyConfig{Name: "q", Algorithm: core.TokenBucket{Rate: 1, Per: 701 * time.Millisecond, Burst: 9}, Unit: core.UnitTokens}),
			},
		}).Handler(http.HandlerFunc(ok))
		got := modelLimits(t, get(h))
		if got["requests-reset"] != "2000-01-01T00:00:01Z" || got["tokens-reset"] != "2000-01-01T00:00:02Z" {
			t.Errorf("%v", got)
		}
	})
}

// The headers agree with what Redis decides.
func TestModelHeadersOnEachGate(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		h := guard(t, nethttp.Config{Gate: gate, Dialect: llm.OpenAI{}, Rules: []nethttp.Rule{
			spends(t, 1, core.PolicyConfig{Name: "rpd", Algorithm: core.FixedWindow{Limit: 10, Window: 24 * time.Hour, FromFirst: true}}),
			spends(t, 40, core.PolicyConfig{Name: "gift", Algorithm: core.TokenBucket{Burst: 100}, Unit: core.UnitInputTokens}),
		}}).Handler(http.HandlerFunc(ok))
		for i, status := range []int{200, 200, 429, 429} {
			r := get(h)
			got := modelLimits(t, r)
			left, wait := min(i+1, 2), got["reset-requests"]
			delete(got, "reset-requests")
			want := map[string]string{
				"limit-requests": "10", "remaining-requests": strconv.Itoa(10 - left),
				"limit-tokens": "100", "remaining-tokens": strconv.Itoa(100 - 40*left),
			}
			if i == 3 && len(got) == 0 { // a cached denial that lasts for ever knows nothing else
				continue
			}
			if r.StatusCode != status || !maps.Equal(got, want) {
				t.Errorf("request %d: %d\n%v, want %d\n%v", i, r.StatusCode, got, status, want)
			}
			if d, err := time.ParseDuration(wait); err != nil || d > 24*time.Hour || d < 24*time.Hour-generous {
				t.Errorf("request %d: reset %q", i, wait)
			}
		}
	})
}

// A class that a policy denies without a known limit is not stated, and neither are blocks.
func TestModelHeadersOfUnknownLimits(t *testing.T) {
	share := core.PolicyConfig{Name: "share", Algorithm: core.PerHour(1)}
	tokens := core.PolicyConfig{Name: "tpm", Algorithm: core.PerMinute(1000), Unit: core.UnitTokens}
	for _, dialect := range modelDialects(0) {
		h := guard(t, nethttp.Config{Gate: dead(t), Rules: rules(t, share, tokens), Dialect: dialect}).Handler(http.HandlerFunc(ok))
		for _, status := range []int{200, 429} {
			if r := get(h); r.StatusCode != status || len(modelLimits(t, r)) > 0 {
				t.Errorf("%v: %d, %v", dialect, r.StatusCode, r.Header)
			}
		}
		h = guard(t, nethttp.Config{
			Gate: memory(t, aClock()), Dialect: dialect, Rules: rules(t, tokens),
			Blocks: []nethttp.BlockRule{{
				Policy: bans(t, core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}), Key: keyfunc.RemoteIP(),
				Strikes: nethttp.StrikeOn(http.StatusOK),
			}},
		}).Handler(http.HandlerFunc(ok))
		for _, status := range []int{200, 429} {
			r := get(h)
			got := modelLimits(t, r)
			if r.StatusCode != status || len(got) != 3 || got["remaining-tokens"]+got["tokens-remaining"] != "999" {
				t.Errorf("%v: %d, %v", dialect, r.StatusCode, r.Header)
			}
		}
	}
}

// Of each class the tighter limit of two guards is stated.
func TestStackedGuardsWithModelHeaders(t *testing.T) {
	gate := memory(t, aClock())
	of := func(all ...nethttp.Rule) func(http.Handler) http.Handler {
		return guard(t, nethttp.Config{Gate: gate, Dialect: llm.OpenAI{}, Rules: all}).Handler
	}
	first := of(
		spends(t, 1, core.PolicyConfig{Name: "few", Algorithm: core.PerMinute(5)}),
		spends(t, 150, core.PolicyConfig{Name: "many", Algorithm: core.PerMinute(100_000), Unit: core.UnitTokens}),
	)
	second := of(
		spends(t, 1, core.PolicyConfig{Name: "often", Algorithm: core.PerMinute(600)}),
		spends(t, 150, core.PolicyConfig{Name: "little", Algorithm: core.TokenBucket{Burst: 350}, Unit: core.UnitTokens}),
	)
	for i, h := range []http.Handler{
		first(second(http.HandlerFunc(ok))), second(first(http.HandlerFunc(ok))), first(second(http.HandlerFunc(ok))),
	} {
		n := strconv.Itoa
		want := map[string]string{
			"limit-requests": "5", "remaining-requests": n(4 - i), "reset-requests": n(12*(i+1)) + "s",
			"limit-tokens": "350", "remaining-tokens": n(max(200-150*i, 50)), // the last one is denied
		}
		if got := modelLimits(t, get(h)); !maps.Equal(got, want) {
			t.Errorf("request %d:\n%v, want\n%v", i, got, want)
		}
	}
}
