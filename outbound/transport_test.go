package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	refusal := refuse(429, "slow down", "retry-after-ms", "30")
	for _, c := range []struct {
		name    string
		answers int // refusals before the response
		max     int
		body    string // of the request; none if empty
		getBody func() (io.ReadCloser, error)
		maxWait time.Duration
		answer  func(http.ResponseWriter)
		sent    int
		status  int
	}{
		{name: "nothing unless told", answers: 1, maxWait: time.Minute, sent: 1, status: 429},
		{name: "once", answers: 1, max: 3, maxWait: time.Minute, sent: 2, status: 200},
		{name: "bounded", answers: 5, max: 2, maxWait: time.Minute, sent: 3, status: 429},
		{name: "body", answers: 2, max: 2, body: "hello", maxWait: time.Minute, sent: 3, status: 200},
		{name: "body that can be read once", answers: 1, max: 2, body: "hello", getBody: func() (io.ReadCloser, error) { return nil, errors.New("read once") }, maxWait: time.Minute, sent: 1, status: 429},
		{name: "no wait", answers: 1, max: 2, sent: 1, status: 429},
		{name: "long wait", answers: 1, max: 2, maxWait: time.Minute, answer: refuse(429, "slow down", "Retry-After", "3600"), sent: 1, status: 429},
		{name: "spent", answers: 1, max: 2, maxWait: time.Minute, answer: refuse(402, "slow down"), sent: 1, status: 402},
		{name: "told not to", answers: 1, max: 2, maxWait: time.Minute, answer: refuse(429, "slow down", "retry-after-ms", "30", "x-should-retry", "false"), sent: 1, status: 429},
		{name: "no refusal", answers: 1, max: 2, maxWait: time.Minute, answer: refuse(500, "slow down"), sent: 1, status: 500},
		{name: "long refusal", answers: 1, max: 2, maxWait: time.Minute, answer: refuse(429, strings.Repeat("slow down", 10_000), "retry-after-ms", "30"), sent: 1, status: 429},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				a := new(answers)
				u := serve(t, func(w http.ResponseWriter, r *http.Request) {
					if text, err := io.ReadAll(r.Body); string(text) != c.body || err != nil {
						t.Errorf("the upstream read %q, %v", text, err)
					}
					a.ServeHTTP(w, nil)
				})
				for range c.answers {
					if c.answer == nil {
						c.answer = refusal
					}
					a.push(c.answer)
				}
				slot, policy := slotOf(t, g, 1), gatetest.Limited(t, "a", gatetest.Frozen(10))
				tr := transport(t, outbound.Config{
					Base: base(t), Gate: g, MaxWait: c.maxWait, Retry: outbound.Retry{Max: c.max}, Slot: slot,
					Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost}},
				})
				var body io.Reader
				if c.body != "" {
					body = strings.NewReader(c.body)
				}
				r := gatetest.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL, body))(t)
				if c.getBody != nil {
					r.GetBody = c.getBody
				}
				res := roundTrip(t, tr, r)
				text, err := io.ReadAll(res.Body)
				if res.StatusCode != c.status || u.count() != c.sent || err != nil ||
					c.status != 200 && !strings.HasPrefix(string(text), "slow down") {
					t.Errorf("status %d after %d requests, %.20q, %v", res.StatusCode, u.count(), text, err)
				}
				_ = res.Body.Close()
				gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, u.URL) == 0 })
				gatetest.Equal(t, standing(t, g, policy, core.Must(outbound.ByHost(r))).Used, int64(c.sent), "spent")
			})
		})
	}
}

// Refusals that say nothing of other requests, in pairs of headers.
const (
	tooLarge = `{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 9 tokens, but can only afford 3."}}`
	tooLong  = `{"error":{"message":"Request too large for gpt-4o","code":"rate_limit_exceeded"}}`
	noSearch = `{"message":"API rate limit exceeded for user ID 1."}`
)

func searchHeader() []string {
	return []string{"X-Github-Request-Id", "1", "X-Ratelimit-Resource", "search", "X-Ratelimit-Remaining", "0", "Retry-After", "60"}
}

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
				policy, told, lowered := gatetest.Limited(t, "a", algorithm), "", int64(0)
				cfg := outbound.Config{
					Base: base(t), Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost, Limit: "requests"}},
					Observe: func(_ context.Context, e core.Event) {
						if e, ok := e.(*outbound.LowerEvent); ok {
							if e.Err != nil || fmt.Sprint(e.Remaining) != told || e.Policy != policy || e.EventName() != "lower" {
								t.Errorf("%+v", e)
							}
							lowered += e.Spent
						}
					},
				}
				r := newRig(t, cfg)
				replicas := []*outbound.Transport{r.tr, transport(t, cfg)}
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
					told, r.tr = c.told, replicas[i%2]
					r.push(refuse(200, "", "x-ratelimit-limit-requests", "1000", "x-ratelimit-remaining-requests", told, "x-ratelimit-remaining-tokens", "3"))
					if r.want("", 200); 100-r.used(policy) != c.left {
						t.Errorf("response %d tells %q: %d left, want %d", i, told, 100-r.used(policy), c.left)
					}
				}
				gatetest.Equal(t, lowered, 37+15+38, "units were spent for it")
				r.busy("", "a")
			})
		})
	}
}

// Under a raised limit the rule counts what a response tells, whether that is more than the limit is
// without its raises or less.
func TestRemainingLowersWithRaises(t *testing.T) {
	for name, algorithm := range map[string]core.Algorithm{
		"frozen":   gatetest.Frozen(100),
		"calendar": core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC},
	} {
		t.Run(name, func(t *testing.T) {
			eachGate(t, func(t *testing.T, g *core.Gate) {
				policy := gatetest.Policy(t, core.PolicyConfig{Name: "a", Algorithm: algorithm, Raisable: true})
				r := newRig(t, outbound.Config{
					Gate: g, Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost, Limit: "requests"}},
				})
				key, _ := outbound.ByHost(request(t, t.Context(), r.URL))
				raise(t, g, policy, key, 100)
				for _, told := range []int64{199, 120, 50, 0} {
					r.push(refuse(200, "", "X-Ratelimit-Remaining", fmt.Sprint(told)))
					r.want("", 200)
					gatetest.Equal(t, 200-r.used(policy), told, "left")
				}
			})
		})
	}
}

// A threshold is told of the limit of the rule, by the next decision after a response has lowered it.
func TestRemainingTellsNoFalseThreshold(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		reached := make(chan *core.ThresholdEvent, 10)
		policy := gatetest.Policy(t, core.PolicyConfig{
			Name: "year", Algorithm: core.Calendar{Limit: 1000, Every: core.PeriodYear, In: time.UTC}, Thresholds: []int{80, 90},
		})
		r := newRig(t, outbound.Config{
			Gate: gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix, Observe: func(_ context.Context, e core.Event) {
				if e, ok := e.(*core.ThresholdEvent); ok {
					reached <- e
				}
			}}),
			Rules: []outbound.Rule{{Policy: policy, Key: outbound.ByHost, Limit: "requests"}},
		})
		for _, left := range []string{"900", "150"} {
			r.push(refuse(200, "", "X-Ratelimit-Remaining", left))
			r.want("", 200)
		}
		r.want("", 200)
		if e := <-reached; e.Percent != 80 || e.Used != 851 || e.Limit != 1000 {
			t.Errorf("%d %%: %d of %d are used", e.Percent, e.Used, e.Limit)
		}
	})
}

// What a response tells is not compared with what was left for an earlier sending, if this process has
// decided alone since.
func TestRemainingLowersNothingAlone(t *testing.T) {
	s, sent := redistest.Start(t), 0
	tr := transport(t, outbound.Config{
		Gate: gatetest.Redis(t, s.Client(t), core.Config{Timeout: gatetest.ShortTimeout}), MaxWait: time.Minute, Retry: outbound.Retry{Max: 1},
		Rules: []outbound.Rule{{Policy: gatetest.Limited(t, "a", gatetest.Frozen(100)), Key: outbound.ByHost, Limit: "requests"}},
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				s.Kill()
				return &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"1"}}, Body: http.NoBody}, nil
			}
			return &http.Response{StatusCode: 200, Header: http.Header{"X-Ratelimit-Remaining-Requests": {"10"}}, Body: http.NoBody}, nil
		}),
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.LowerEvent); ok {
				t.Errorf("%+v", e)
			}
		},
	})
	if status, err := get(t, tr, "http://example.com/"); status != 200 || err != nil {
		t.Error(status, err)
	}
}

// Where nothing is left until a reset, requests under the rule wait for that, whatever its algorithm is,
// and others do not. A limit that refills until its reset has units before, and a reset that is past
// tells nothing.
func TestNothingLeftUntilTheReset(t *testing.T) {
	window := core.FixedWindow{Limit: 20, Window: time.Hour}
	bucket := core.TokenBucket{Rate: 2, Per: time.Second, Burst: 20}
	for name, c := range map[string]struct {
		rule    core.Algorithm
		limit   string
		headers []string
		waits   time.Duration // under the rule, until there is room
	}{
		"a window":        {window, "requests", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8 * time.Second},
		"a bucket":        {bucket, "requests", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8 * time.Second},
		"a bucket of one": {core.TokenBucket{Rate: 2, Per: time.Second, Burst: 1}, "requests", []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "8"}, 8 * time.Second},
		"a log":           {core.AnyMinute(20), "requests", []string{"RateLimit", `"default";r=0;t=8`}, 0},
		"draft -11":       {core.AnyMinute(20), "default", []string{"RateLimit", `"default";r=0;t=8`}, 8 * time.Second},
		"many windows": {window, "requests", []string{
			"X-RateLimit-Remaining", strings.Repeat("0, ", 10_000), "X-RateLimit-Reset", strings.Repeat("3, 8, ", 5000),
		}, 8 * time.Second},
		"one left":        {window, "requests", []string{"X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "8"}, 0},
		"OpenAI's bucket": {bucket, "requests", []string{"x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "8s"}, time.Second / 2},
	} {
		t.Run(name, func(t *testing.T) {
			clock := core.NewManualClock(time.Now())
			g := gatetest.Memory(t, core.Config{Clock: clock.Now})
			r := newRig(t, outbound.Config{Gate: g, Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "a", c.rule), Key: outbound.ByHost, Limit: c.limit,
				Skip: func(r *http.Request) bool { return r.URL.Path == "/other" },
			}}})
			answer := refuse(200, "", c.headers...)
			r.push(answer, answer, answer, answer)
			r.want("", 200)
			r.want("/other", 200)
			if c.waits == 0 {
				r.want("", 200)
				return
			}
			rule := "cooldown"
			if name == "OpenAI's bucket" {
				rule = "a"
			}
			if busy := r.busy("", rule); busy.After > c.waits || busy.After < c.waits-time.Second {
				t.Errorf("%+v, want %v", busy, c.waits)
			}
			if n := len(r.cooled); n > 1 {
				t.Errorf("%d cooldowns of one response", n)
			}
			clock.Advance(c.waits)
			r.want("", 200)
		})
	}
}

// A count lowers the rule that names its limit, and no other one. None lowers what fills a leaky bucket,
// or two counters.
func TestRemainingLowersTheRuleThatNamesIt(t *testing.T) {
	window := core.FixedWindow{Limit: 1000, Window: 24 * time.Hour, FromFirst: true}
	for name, c := range map[string]struct {
		limits []string // of the rules, which count 1,000
		told   []string // names and values of headers
		used   []int64
		limit  core.Algorithm // or window
	}{
		"OpenAI": {[]string{"", "tokens", "requests"}, []string{"X-Ratelimit-Remaining-Tokens", "7", "X-Ratelimit-Reset-Tokens", "2h"}, []int64{1, 993, 1}, nil},
		"Anthropic": {[]string{"input-tokens", "output-tokens", "priority-input-tokens"}, []string{"Anthropic-Ratelimit-Input-Tokens-Remaining", "7",
			"Anthropic-Ratelimit-Output-Tokens-Remaining", "8", "Anthropic-Priority-Input-Tokens-Remaining", "9"}, []int64{993, 992, 991}, nil},
		"Kong":             {[]string{"minute", "hour"}, []string{"X-Ratelimit-Remaining-Minute", "3", "X-Ratelimit-Remaining-Hour", "900"}, []int64{997, 100}, nil},
		"Mistral":          {[]string{"req-minute"}, []string{"X-Ratelimit-Remaining-Req-Minute", "3"}, []int64{997}, nil},
		"draft -11":        {[]string{"burst", "long"}, []string{"Ratelimit", `"Burst";r=70;t=12, "long";r=640`}, []int64{930, 360}, nil},
		"draft -07":        {[]string{"requests"}, []string{"Ratelimit", "limit=100, remaining=40, reset=9"}, []int64{960}, nil},
		"GitHub":           {[]string{"requests", "search"}, []string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "core"}, []int64{993, 1}, nil},
		"GitHub, search":   {[]string{"requests", "search"}, []string{"X-Ratelimit-Remaining", "7", "X-Ratelimit-Resource", "search"}, []int64{1, 993}, nil},
		"Discord":          {[]string{"requests"}, []string{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Bucket", "abcd"}, []int64{1}, nil},
		"two rules of one": {[]string{"tokens", "tokens"}, []string{"X-Ratelimit-Remaining-Tokens", "7"}, []int64{993, 993}, nil},
		"counters":         {[]string{"requests"}, []string{"X-Ratelimit-Remaining", "1"}, []int64{1}, core.SlidingWindow{Limit: 100, Window: time.Hour}},
		"leaky bucket":     {[]string{"requests"}, []string{"X-Ratelimit-Remaining", "1"}, []int64{1}, core.LeakyBucket{Rate: 100, Per: time.Hour, Capacity: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.limit == nil {
				c.limit = window
			}
			var rules []outbound.Rule
			for i, limit := range c.limits {
				rules = append(rules, outbound.Rule{Policy: gatetest.Limited(t, fmt.Sprint("r", i), c.limit), Key: outbound.ByHost, Limit: limit})
			}
			r := newRig(t, outbound.Config{Rules: rules})
			r.push(refuse(200, "", c.told...))
			r.want("", 200)
			for i, want := range c.used {
				gatetest.Equal(t, r.used(rules[i].Policy), want, "rule %d: used", i)
			}
		})
	}
}
