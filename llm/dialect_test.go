package llm_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// spends returns a rule by the client's address that charges cost.
func spends(t *testing.T, cost int64, cfg core.PolicyConfig) nethttp.Rule {
	t.Helper()
	return nethttp.Rule{Policy: gatetest.Policy(t, cfg), Key: keyfunc.RemoteIP(), Cost: func(*http.Request) int64 { return cost }}
}

// modelLimits returns what a response states of limits in the headers of model APIs, sorted: of each
// class what remains, the limit, and the time until a reset. It checks their syntax.
func modelLimits(t *testing.T, r *http.Response) string {
	t.Helper()
	classes := make(map[string]*[3]string)
	for name, values := range r.Header {
		vendor, rest, found := strings.Cut(strings.ToLower(name), "-ratelimit-")
		if !found {
			continue
		}
		what, class, _ := strings.Cut(rest, "-")
		if vendor == "anthropic" {
			at := strings.LastIndex(rest, "-")
			class, what = rest[:at], rest[at+1:]
		}
		value, err := strings.Join(values, " | "), error(nil)
		switch {
		case what != "reset":
			_, err = strconv.ParseInt(value, 10, 64)
		case vendor == "x":
			_, err = time.ParseDuration(value)
		default:
			_, err = time.Parse(time.RFC3339, value)
			value = strings.TrimPrefix(value, "2000-01-01T")
		}
		gatetest.Is(t, err, nil, "%s", name)
		if classes[class] == nil {
			classes[class] = new([3]string)
		}
		classes[class][map[string]int{"remaining": 0, "limit": 1, "reset": 2}[what]] = value
	}
	var all []string
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		c := classes[class]
		all = append(all, strings.TrimSpace(class+" "+c[0]+"/"+c[1]+" "+c[2]))
	}
	return strings.Join(all, ", ")
}

// In a test bubble it is midnight of 1 January 2000.
func TestModelHeaders(t *testing.T) {
	type policies []core.PolicyConfig
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
	for _, tt := range []struct {
		name      string
		policies  policies // each request costs 1 request, and 150 of the others
		before    int
		status    int
		openAI    string
		anthropic string
	}{
		{"requests", policies{requests}, 0, 200, "requests 9/10 6s", "requests 9/10 00:00:06Z"},
		{"tokens", policies{tokens}, 0, 200, "tokens 850/1000 9s", "tokens 850/1000 00:00:09Z"},
		{"input tokens", policies{input}, 0, 200, "tokens 1850/2000 4.5s", "input-tokens 1850/2000 00:00:05Z"},
		{"output tokens", policies{output}, 0, 200, "tokens 350/500 18s", "output-tokens 350/500 00:00:18Z"},
		{"all units", policies{money, input, output, tokens, requests}, 0, 200, "requests 9/10 6s, tokens 350/500 18s",
			"input-tokens 1850/2000 00:00:05Z, output-tokens 350/500 00:00:18Z, requests 9/10 00:00:06Z, tokens 850/1000 00:00:09Z"},
		{"money", policies{money}, 0, 200, "", ""},
		{"money denies", policies{money, requests}, 1, 429, "requests 9/10 6s", "requests 9/10 00:00:06Z"},
		{"never refills", policies{gift}, 0, 200, "tokens 50/200", "tokens 50/200"},
		{"shadow", policies{shadow, tokens}, 0, 200, "tokens 850/1000 9s", "tokens 850/1000 00:00:09Z"},
		{"unlimited", policies{free}, 0, 200, "", ""},
		{"deny all", policies{none, tokens}, 0, 403, "", ""},
		{"less than a second", policies{fast}, 0, 200, "requests 6/7 143ms", "requests 6/7 00:00:01Z"},
		{"minutes", policies{hourly}, 0, 200, "requests 9/10 6m0s", "requests 9/10 00:06:00Z"},
		{"the least part left", policies{requests, hourly, fast}, 0, 200, "requests 6/7 143ms", "requests 6/7 00:00:01Z"},
		{"tokens deny", policies{requests, tokens, output}, 3, 429, "requests 7/10 18s, tokens 50/500 54s",
			"output-tokens 50/500 00:00:54Z, requests 7/10 00:00:18Z, tokens 550/1000 00:00:27Z"},
		{"the longest denial", policies{small, gift}, 1, 429, "tokens 50/200", "output-tokens 50/200 00:00:45Z, tokens 50/200"},
	} {
		for dialect, want := range map[nethttp.Dialect]string{llm.OpenAI{}: tt.openAI, llm.Anthropic{}: tt.anthropic} {
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
					if got := modelLimits(t, r); r.StatusCode != tt.status || got != want {
						t.Errorf("%d, %q, want %d, %q", r.StatusCode, got, tt.status, want)
					}
				})
			})
		}
	}
}

// The headers, and the error of a denial, agree with what Redis decides. A denial that this process
// remembers has the same error.
func TestModelHeadersOnEachGate(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		h := guard(t, nethttp.Config{Gate: gate, Dialect: llm.OpenAI{}, Rules: []nethttp.Rule{
			spends(t, 1, core.PolicyConfig{Name: "rpy", Algorithm: core.Calendar{Limit: 10, Every: core.PeriodYear, In: time.UTC}}),
			spends(t, 40, core.PolicyConfig{Name: "gift", Algorithm: core.TokenBucket{Burst: 100}, Unit: core.UnitInputTokens}),
		}}).Handler(http.HandlerFunc(ok))
		for i, status := range []int{200, 200, 429, 429} {
			r := get(h)
			got, left := modelLimits(t, r), min(i+1, 2)
			// A cached denial that lasts for ever knows nothing else.
			want := regexp.MustCompile(fmt.Sprintf(`^requests %d/10 \S+, tokens %d/100$`, 10-left, 100-40*left))
			if r.StatusCode != status || !want.MatchString(got) && (i < 3 || got != "") {
				t.Errorf("request %d: %d, %s, want %d, %v", i, r.StatusCode, got, status, want)
			}
			if status != 429 {
				continue
			}
			if e := readAPIError(t, r); e.Error.Code != "insufficient_quota" || r.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("request %d: %+v, %v", i, e, r.Header)
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
			if r := get(h); r.StatusCode != status || modelLimits(t, r) != "" {
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
			if r.StatusCode != status || !strings.HasPrefix(modelLimits(t, r), "tokens 999/1000 ") {
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
		want := fmt.Sprintf("requests %d/5 %ds, tokens %d/350", 4-i, 12*(i+1), max(200-150*i, 50)) // the last one is denied
		gatetest.Equal(t, modelLimits(t, get(h)), want, "request %d", i)
	}
}

var retryNames = []string{"Retry-After", "Retry-After-Ms", "X-Should-Retry"}

// retryHeaders returns the values of retryNames.
func retryHeaders(h http.Header) string {
	var values []string
	for _, name := range retryNames {
		values = append(values, strings.Join(h.Values(name), " | "))
	}
	return strings.Join(values, ", ")
}

// modelDialects returns the dialects of model APIs.
func modelDialects(within time.Duration) []nethttp.Dialect {
	return []nethttp.Dialect{llm.OpenAI{RetryWithin: within}, llm.Anthropic{RetryWithin: within}}
}

// oneEvery allows one request, and the next after wait.
func oneEvery(wait time.Duration) core.Algorithm {
	if wait == core.Never {
		return core.TokenBucket{Burst: 1}
	}
	return core.TokenBucket{Rate: 1, Per: wait, Burst: 1}
}

// A client of a model API is told to retry only within RetryWithin, and how many milliseconds to
// wait below a second. What the handlers around a guard have set stays if it is stricter.
func TestRetryWithin(t *testing.T) {
	const quarter = 250 * time.Millisecond
	for _, tt := range []struct {
		name         string
		within, wait time.Duration
		outer        string // Retry-After, Retry-After-Ms, X-Should-Retry
		want         string
	}{
		{"a microsecond", 0, time.Microsecond, "", "1, 1, "},
		{"milliseconds", 0, quarter, "", "1, 250, "},
		{"milliseconds are rounded up", 0, quarter + time.Microsecond, "", "1, 251, "},
		{"just below a second", 0, time.Second - time.Microsecond, "", "1, 1000, "},
		{"a second", 0, time.Second, "", "1, , "},
		{"above a second", 0, 1100 * time.Millisecond, "", "2, , "},
		{"the default", 0, time.Minute, "", "60, , "},
		{"above the default", 0, time.Minute + time.Microsecond, "", "61, , false"},
		{"the limit", time.Hour, time.Hour, "", "3600, , "},
		{"above the limit", time.Hour, time.Hour + time.Microsecond, "", "3601, , false"},
		{"above a short limit", 100 * time.Millisecond, 101 * time.Millisecond, "", "1, 101, false"},
		{"weeks", 0, 28 * 24 * time.Hour, "", ", , false"},
		{"never", 0, core.Never, "", ", , false"},
		{"never, with a long limit", core.Never - 1, core.Never, "", ", , false"},
		{"a longer wait", 0, 2 * time.Second, "5, , ", "5, , "},
		{"a shorter wait", 0, 5 * time.Second, "2, , ", "5, , "},
		{"a longer wait than milliseconds", 0, quarter, "5, , ", "5, , "},
		{"a second, and milliseconds", 0, quarter, "1, , ", "1, , "},
		{"more milliseconds", 0, quarter, "1, 800, ", "1, 800, "},
		{"fewer milliseconds", 0, quarter, "1, 100, ", "1, 250, "},
		{"milliseconds alone", 0, quarter, ", 800, ", "1, 800, "},
		{"milliseconds, and a longer wait", 0, 2 * time.Second, "1, 800, ", "2, , "},
		{"milliseconds that contradict the seconds", 0, quarter, "5, 300, ", "5, , "},
		{"milliseconds that refine the seconds", 0, 2 * time.Second, "5, 4500, ", "5, 4500, "},
		{"do not retry", 0, 2 * time.Second, ", , false", "2, , false"},
		{"retry, but not so soon", 0, 2 * time.Minute, ", , true", "120, , false"},
		{"a wait that is too long", 0, 2 * time.Second, "61, , ", "61, , false"},
		{"a wait, and never", 0, core.Never, "5, , ", "5, , false"},
		{"a date", 0, 2 * time.Second, "31 Dec 1999 23:59:59 GMT, , ", "2, , "},
		{"a huge number", 0, 2 * time.Second, "9223372036854775807, , ", "9223372036854775807, , false"},
		{"a negative number", 0, quarter, "-5, -5, ", "1, 250, "},
	} {
		for _, dialect := range modelDialects(tt.within) {
			t.Run(fmt.Sprintf("%s, %T", tt.name, dialect), func(t *testing.T) {
				h := guard(t, nethttp.Config{
					Gate: memory(t, aClock()), Dialect: dialect, Rules: rules(t, core.PolicyConfig{Name: "p", Algorithm: oneEvery(tt.wait)}),
				}).Handler(http.HandlerFunc(ok))
				if r := get(h); r.StatusCode != 200 || retryHeaders(r.Header) != ", , " {
					t.Errorf("%d, %s", r.StatusCode, retryHeaders(r.Header))
				}
				r := get(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if tt.outer != "" {
						for i, value := range strings.Split(tt.outer, ", ") {
							if value != "" {
								w.Header().Set(retryNames[i], value)
							}
						}
					}
					h.ServeHTTP(w, r)
				}))
				if got := retryHeaders(r.Header); r.StatusCode != 429 || got != tt.want {
					t.Errorf("%d, %s, want %s", r.StatusCode, got, tt.want)
				}
			})
		}
	}
}

// The dialects are for any Guard. These are the Guards without a Meter that test them.

// generous bounds what a slow machine may take.
const generous = 30 * time.Second

func aClock() *core.ManualClock { return core.NewManualClock(time.UnixMicro(1_800_000_000_000_000)) }

func memory(t *testing.T, c *core.ManualClock) *core.Gate {
	t.Helper()
	return gatetest.Memory(t, core.Config{Clock: c.Now})
}

// dead returns a gate whose Redis refuses connections.
func dead(t *testing.T) *core.Gate {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	return core.Must(core.NewRedis(client, core.Config{}))
}

func eachGate(t *testing.T, f func(t *testing.T, gate *core.Gate)) {
	t.Run("memory", func(t *testing.T) { f(t, gatetest.Memory(t, core.Config{})) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		f(t, gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: generous}))
	})
}

func guard(t *testing.T, cfg nethttp.Config) *nethttp.Guard {
	t.Helper()
	return gatetest.Must(nethttp.NewGuard(cfg))(t)
}

// rules returns a rule by the client's address for each policy.
func rules(t *testing.T, policies ...core.PolicyConfig) (all []nethttp.Rule) {
	t.Helper()
	for _, p := range policies {
		all = append(all, nethttp.Rule{Policy: gatetest.Policy(t, p), Key: keyfunc.RemoteIP()})
	}
	return all
}

func bans(t *testing.T, b core.Block) *core.Policy {
	t.Helper()
	return gatetest.Policy(t, core.PolicyConfig{Name: "bans", Algorithm: b})
}

// crowded returns a handler with caps of two requests a user and three of all, at which these users
// have requests that run. Each user may make 10 requests.
func crowded(t *testing.T, cfg nethttp.Config, users ...string) http.Handler {
	t.Helper()
	cfg.Gate = memory(t, aClock())
	slots := gatetest.Must(semaphore.New(cfg.Gate, semaphore.Config{Name: "streams", MaxWaiters: 1}))(t)
	slot := nethttp.Slot{}
	if cfg.Slot != nil {
		slot = *cfg.Slot
	}
	user := keyfunc.Must(keyfunc.Header("X-User"))
	slot.Semaphore, slot.Caps = slots, []nethttp.Cap{
		{Name: "tenant", Key: keyfunc.Must(keyfunc.Static("all")), Limit: 3, Global: true},
		{Name: "streams", Key: user, Limit: 2},
	}
	cfg.Slot = &slot
	requests := core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Burst: 10}}
	cfg.Rules = []nethttp.Rule{{Policy: gatetest.Policy(t, requests), Key: user}}
	entered, end := make(chan struct{}), make(chan struct{})
	h := guard(t, cfg).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-end
	}))
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(end)
		running.Wait()
	})
	for _, user := range users {
		running.Go(func() { get(h, as(user)) })
		<-entered
	}
	return h
}

func as(user string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-User", user) }
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func get(h http.Handler, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b := gatetest.Must(io.ReadAll(r.Body))(t)
	return string(b)
}

// observed returns a Config.Observe that is told of admissions only.
func observed(f func(*nethttp.Admission)) func(context.Context, core.Event) {
	return func(_ context.Context, e core.Event) { f(e.(*nethttp.AdmissionEvent).Admission) }
}
