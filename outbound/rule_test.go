package outbound_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// Tokens are estimated before a request is sent, and settled when its response has ended. Cost and Settle
// see the model.
func TestMeteredRule(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		models := make(chan string, 10)
		see := func(r *http.Request) { models <- outbound.ModelOf(r.Context()) }
		tokens := gatetest.Policy(t, core.PolicyConfig{Name: "tokens", Algorithm: gatetest.Frozen(25), Unit: core.UnitTokens})
		requests := gatetest.Limited(t, "requests", gatetest.Frozen(100))
		r := newRig(t, outbound.Config{Gate: g, Meter: byPath{}, Rules: []outbound.Rule{
			{Policy: tokens, Key: outbound.ByModel},
			{
				Policy: requests, Key: outbound.ByModel, Cost: func(r *http.Request) int64 { see(r); return 1 },
				Settle: func(r *http.Request, _ *http.Response, cost int64) int64 { see(r); return cost },
			},
		}})
		answer := refuse(200, "ok") // which runs until it is closed
		r.push(answer, answer, answer)
		q := request(t, t.Context(), r.URL+"/m")
		account := core.Must(outbound.ByCredential(q))
		key := gatetest.Key(t, account.Parts()[0], "m")
		used := func() string { return fmt.Sprint(standing(t, g, tokens, key).Used, standing(t, g, requests, key).Used) }
		res := roundTrip(t, r.tr, q)
		gatetest.Equal(t, used(), "10 1", "tokens and requests are spent by a request that runs")
		_ = res.Body.Close()
		gatetest.Eventually(t, "the tokens are settled", func() bool { return used() == "4 1" })
		for range 2 {
			gatetest.Equal(t, <-models, "m", "the model is")
			gatetest.Must(r.tr.RoundTrip(q))(t)
		}
		if busy := r.busy("/m", "tokens"); busy.After != core.Never || !busy.At.IsZero() || busy.Spent {
			t.Errorf("%+v", busy)
		}
		if n := used(); n != "24 3" || r.count() != 3 {
			t.Errorf("%s tokens and requests are spent, %d sent", n, r.count())
		}
	})
}

// A KeyFunc may derive the key of a request that it has changed.
func TestKeysOfChangedRequests(t *testing.T) {
	elsewhere := func(of outbound.KeyFunc) outbound.KeyFunc {
		return func(r *http.Request) (core.Key, error) {
			r = r.Clone(r.Context())
			r.URL.Host = "other.example.com"
			return of(r)
		}
	}
	const account = ":6dqG01HPmnZC2MUBlcP0Zg" // of SHA-256
	var rules []outbound.Rule
	for want, of := range map[string]outbound.KeyFunc{
		"{other.example.com}" + account: elsewhere(outbound.ByCredential), "{other.example.com}" + account + ":m": elsewhere(outbound.ByModel),
		"{api.example.com}" + account: outbound.ByCredential, "{api.example.com}" + account + ":m": outbound.ByModel,
	} {
		rules = append(rules, outbound.Rule{
			Policy: gatetest.Limited(t, rand.Text(), gatetest.Frozen(1)),
			Key: func(r *http.Request) (core.Key, error) {
				key, err := of(r)
				if key.String() != want {
					t.Errorf("the key is %q, want %q", key, want)
				}
				return key, err
			},
		})
	}
	tr := transport(t, outbound.Config{
		Base: answered, Gate: gatetest.Memory(t, core.Config{}), Meter: byPath{}, Rules: rules,
		Credential: func(*http.Request) string { return "tenant" },
	})
	gatetest.Must(get(t, tr, "http://api.example.com/m"))(t)
}

// Costs, and what skips a rule.
func TestCostAndSkip(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		rule := func(name string) outbound.Rule {
			return outbound.Rule{Policy: gatetest.Limited(t, name, gatetest.Frozen(10)), Key: outbound.ByHost}
		}
		free, dear, clamped, skipped := rule("free"), rule("dear"), rule("clamped"), rule("skipped")
		free.Cost = func(*http.Request) int64 { return 0 }
		dear.Cost = func(*http.Request) int64 { return 7 }
		clamped.Cost, clamped.Clamp = func(*http.Request) int64 { return 1000 }, true
		clamped.Settle = func(_ *http.Request, _ *http.Response, cost int64) int64 { return -1 }
		skipped.Skip = func(*http.Request) bool { return true }
		rules := []outbound.Rule{free, dear, clamped, skipped}
		r := newRig(t, outbound.Config{Gate: g, Rules: rules})
		r.want("", 200)
		gatetest.Eventually(t, "the clamped cost is settled", func() bool { return r.used(clamped.Policy) == 0 })
		for i, want := range []int64{0, 7, 0, 0} {
			gatetest.Equal(t, r.used(rules[i].Policy), want, "%s: spent", rules[i].Policy.Name())
		}
	})
}

// The rest of a cost above the limit is charged when the response has ended, also if no Settle corrects
// it, but not of a request that is refused or gets no response, unless something tells what it has cost.
func TestClampChargesTheRest(t *testing.T) {
	answer := func(status int, kind, body string) roundTripper {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: status, Header: http.Header{"Content-Type": {kind}},
				Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		}
	}
	broken := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") })
	bucket := gatetest.Frozen(10)
	for name, c := range map[string]struct {
		base  roundTripper
		limit core.Algorithm
		rule  outbound.Rule
		meter outbound.Meter // which estimates 10
		raise int64
		used  int64
	}{
		"answered": {base: answer(200, "", "ok"), limit: bucket, used: 15},
		"failed":   {base: answer(500, "", "oh"), limit: bucket, used: 15},
		"refused":  {base: answer(429, "", "slow down"), limit: bucket, used: 10},
		"refused in a stream": {
			base:  answer(200, "text/event-stream", `data: {"error":{"code":"rate_limit_exceeded"}}`+"\n\n"),
			limit: bucket, used: 10,
		},
		"refused in a long event of a stream": {
			base: answer(200, "text/event-stream", `data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded"},"instructions":"`+
				strings.Repeat("x", 70_000)+`"}}`+"\n\n"),
			limit: bucket, used: 10,
		},
		"stream":      {base: answer(200, "text/event-stream", "data: {}\n\n"), limit: bucket, used: 15},
		"no response": {base: broken, limit: bucket, used: 10},
		"no response under a log": {
			base: broken, used: 10,
			limit: core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}, {Limit: 12, Width: 2 * time.Hour}}},
		},
		"no response to what a Meter estimates": {base: broken, limit: gatetest.Frozen(7), meter: byPath{}, used: 7},
		"no response under a raised limit":      {base: broken, limit: bucket, raise: 3, used: 13},
		"settled": {base: broken, limit: bucket, used: 13, rule: outbound.Rule{
			Settle: func(*http.Request, *http.Response, int64) int64 { return 13 },
		}},
	} {
		t.Run(name, func(t *testing.T) {
			settled := make(chan error, 1)
			g := gatetest.Memory(t, core.Config{Observe: func(_ context.Context, e core.Event) {
				if e, ok := e.(*core.ReservationEvent); ok {
					settled <- e.Err
				}
			}})
			c.rule.Policy = gatetest.Policy(t, core.PolicyConfig{Name: "a", Algorithm: c.limit, Unit: core.UnitTokens, Raisable: c.raise > 0})
			key, _ := outbound.ByHost(request(t, t.Context(), "http://example.com/"))
			if c.raise > 0 {
				raise(t, g, c.rule.Policy, key, c.raise)
			}
			c.rule.Key, c.rule.Clamp = outbound.ByHost, true
			if c.meter == nil {
				c.rule.Cost = func(*http.Request) int64 { return 15 }
			}
			tr := transport(t, outbound.Config{Base: c.base, Gate: g, Meter: c.meter, Rules: []outbound.Rule{c.rule}})
			_, _ = get(t, tr, "http://example.com/")
			if err := <-settled; err != nil {
				t.Fatal(err)
			}
			gatetest.Equal(t, standing(t, g, c.rule.Policy, key).Used, c.used, "spent")
		})
	}
}

// A request that cannot be charged fails, closes its body, and is not sent.
func TestBadRequests(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	policy := gatetest.Limited(t, "a", gatetest.Frozen(10))
	broken := errors.New("broken")
	rule := outbound.Rule{Policy: policy, Key: outbound.ByHost}
	for _, c := range []struct {
		name   string
		url    string
		change func(cfg *outbound.Config)
		want   error
	}{
		{"no host", "/path", nil, core.ErrKey},
		{"only a port", "http://:80/", nil, core.ErrKey},
		{"key without a model", "http://example.com/", func(cfg *outbound.Config) { cfg.Rules[0].Key = outbound.ByModel }, core.ErrKey},
		{"zero key", "http://example.com/", func(cfg *outbound.Config) {
			cfg.Rules[0].Key = func(*http.Request) (core.Key, error) { return core.Key{}, nil }
		}, core.ErrKey},
		{"key with an error", "http://example.com/", func(cfg *outbound.Config) {
			cfg.Rules[0].Key = func(*http.Request) (core.Key, error) { return core.Key{}, broken }
		}, broken},
		{"cap with an error", "http://example.com/", func(cfg *outbound.Config) {
			cfg.Slot = slotOf(t, g, 1)
			cfg.Slot.Caps[0].Key = func(*http.Request) (core.Key, error) { return core.Key{}, broken }
		}, broken},
		{"negative cost", "http://example.com/", func(cfg *outbound.Config) {
			cfg.Rules[0].Cost = func(*http.Request) int64 { return -1 }
		}, core.ErrCharge},
		{"meter with an error", "http://example.com/", func(cfg *outbound.Config) { cfg.Meter = failing{broken} }, broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			events := 0
			cfg := outbound.Config{
				Gate: g, Rules: []outbound.Rule{rule}, MaxWait: time.Minute,
				Base: roundTripper(func(*http.Request) (*http.Response, error) {
					t.Error("it was sent")
					return nil, broken
				}),
				Observe: func(_ context.Context, e core.Event) {
					if r, ok := e.(*outbound.RequestEvent); ok && errors.Is(r.Err, c.want) && e.EventName() == "request" {
						events++
					}
				},
			}
			if c.change != nil {
				c.change(&cfg)
			}
			body := newCloser("text")
			r := gatetest.Must(http.NewRequest(http.MethodPost, c.url, body))(t)
			if _, err := transport(t, cfg).RoundTrip(r); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if !body.closed.Load() || events != 1 {
				t.Errorf("closed %v, %d events", body.closed.Load(), events)
			}
		})
	}
	var zero *outbound.Transport
	for _, tr := range []*outbound.Transport{zero, new(outbound.Transport)} {
		body := newCloser("text")
		r, _ := http.NewRequest(http.MethodPost, "http://example.com/", body)
		if _, err := tr.RoundTrip(r); err == nil || !body.closed.Load() {
			t.Error(err, body.closed.Load())
		}
	}
}

// failing is a Meter that fails.
type failing struct{ err error }

func (f failing) Measure(*http.Request) (outbound.Measure, error) { return nil, f.err }

func TestConfigFaults(t *testing.T) {
	g := gatetest.Memory(t, core.Config{})
	policy := gatetest.Limited(t, "a", gatetest.Frozen(10))
	block := gatetest.Limited(t, "b", core.Block{Strikes: 1, Within: time.Second, For: time.Second})
	rule := outbound.Rule{Policy: policy, Key: outbound.ByHost}
	for name, c := range map[string]struct {
		cfg  outbound.Config
		want []string
	}{
		"nothing":         {outbound.Config{}, []string{"Config.Gate is nil"}},
		"zero gate":       {outbound.Config{Gate: new(core.Gate), MaxWait: -1}, []string{"zero Gate", "MaxWait is -1ns"}},
		"several":         {outbound.Config{MaxWait: -1, Retry: outbound.Retry{Max: 11}}, []string{"Gate is nil", "MaxWait is -1ns", "Retry.Max is 11"}},
		"longest":         {outbound.Config{Gate: g, Longest: -1}, []string{"Longest is -1ns"}},
		"too long a wait": {outbound.Config{Gate: g, MaxWait: 100 * 365 * 24 * time.Hour}, []string{"MaxWait is 876000h0m0s"}},
		"rules": {outbound.Config{Gate: g, Rules: []outbound.Rule{
			{}, {Policy: policy}, rule, {Policy: block, Key: outbound.ByHost},
			{Policy: gatetest.Limited(t, "cooldown", gatetest.Frozen(1)), Key: outbound.ByHost},
			{Policy: gatetest.Limited(t, "spent", gatetest.Frozen(1)), Key: outbound.ByHost},
			{Policy: new(core.Policy), Key: outbound.ByHost},
		}}, []string{
			"Rules[0].Policy is missing", "Rules[0].Key is nil", "Rules[1].Key is nil", `Rules[2].Policy is named "a"`,
			"Rules[3].Policy is a core.Block", `Rules[4].Policy is named "cooldown"`, `Rules[5].Policy is named "spent"`,
			"Rules[6].Policy is missing",
		}},
		"tokens of nobody": {outbound.Config{Gate: g, Rules: []outbound.Rule{
			{Policy: gatetest.Policy(t, core.PolicyConfig{Name: "tokens", Algorithm: gatetest.Frozen(1), Unit: core.UnitTokens}), Key: outbound.ByHost},
		}}, []string{"Rules[0] counts tokens, but neither its Cost nor Config.Meter"}},
		"many rules": {outbound.Config{Gate: g, Rules: manyRules(t, 15)}, []string{"Rules has 15 entries"}},
		"slot":       {outbound.Config{Gate: g, Slot: &outbound.Slot{}}, []string{"Slot.Semaphore is nil", "Slot.Caps's length is 0"}},
		"caps": {outbound.Config{Gate: g, Slot: &outbound.Slot{
			Semaphore: newSemaphore(t, gatetest.Memory(t, core.Config{}), semaphoreConfig),
			Caps:      []outbound.Cap{{Share: 1}, {Key: outbound.ByHost, Limit: 3, Share: -1, Floor: 4}},
		}}, []string{
			"Slot.Semaphore is of another Gate", "Slot.Caps[0].Key is nil", "Slot.Caps[0].Limit is 0",
			"Slot.Caps[0].Share is 1", "Slot.Caps[1].Share is -1", "Slot.Caps[1].Floor is 4",
		}},
		"backoff": {outbound.Config{Gate: g, Backoff: outbound.Backoff{First: time.Minute, Most: time.Second}}, []string{
			"Backoff.Most is 1s: it must be between 1m0s and 1h",
		}},
		"first backoff": {outbound.Config{Gate: g, Backoff: outbound.Backoff{First: -1}}, []string{"Backoff.First is -1ns"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outbound.New(c.cfg)
			if err == nil {
				t.Fatal("no fault")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Errorf("%d faults, want %d:\n%v", len(lines), len(c.want), err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in\n%v", want, err)
				}
			}
		})
	}
}

func manyRules(t *testing.T, n int) (rules []outbound.Rule) {
	for i := range n {
		rules = append(rules, outbound.Rule{Policy: gatetest.Limited(t, fmt.Sprint("r", i), gatetest.Frozen(1)), Key: outbound.ByHost})
	}
	return rules
}

var semaphoreConfig = semaphore.Config{Name: "streams"}

// A Transport without a Base sends through http.DefaultTransport.
func TestNilBase(t *testing.T) {
	u := serve(t, nil)
	tr := transport(t, outbound.Config{Gate: gatetest.Memory(t, core.Config{})})
	if status, err := get(t, tr, u.URL); status != http.StatusOK || err != nil {
		t.Error(status, err)
	}
	tr.CloseIdleConnections()
	_, err := get(t, transport(t, outbound.Config{Gate: closedGate(t)}), u.URL)
	gatetest.Is(t, err, core.ErrClosed, "a closed Gate")
}

func closedGate(t *testing.T) *core.Gate {
	g := gatetest.Memory(t, core.Config{})
	gatetest.NoError(t, g.Close(t.Context()))
	return g
}

func TestKeys(t *testing.T) {
	r := func(url string, headers ...string) *http.Request {
		r := request(t, t.Context(), url)
		for pair := range slices.Chunk(headers, 2) {
			r.Header.Add(pair[0], pair[1])
		}
		return r
	}
	for _, c := range []struct {
		name string
		key  outbound.KeyFunc
		a, b *http.Request
		same bool
	}{
		{"case and port of a host", outbound.ByHost, r("https://API.example.com/a"), r("https://api.example.com.:443/b"), true},
		{"port", outbound.ByHost, r("https://api.example.com/"), r("https://api.example.com:80/"), false},
		{"address", outbound.ByHost, r("http://[::1]:80/"), r("http://[::1]/"), true},
		{"host alone", outbound.ByHost, r("http://h/", "Authorization", "Bearer a"), r("http://h/"), true},
		{"same credential", outbound.ByCredential, r("http://h/a", "Authorization", "Bearer a"), r("http://h/b", "Authorization", "Bearer a"), true},
		{"other credential", outbound.ByCredential, r("http://h/", "Authorization", "Bearer a"), r("http://h/", "Authorization", "Bearer b"), false},
		{"none", outbound.ByCredential, r("http://h/"), r("http://h/", "Authorization", "Bearer b"), false},
		{"x-api-key", outbound.ByCredential, r("http://h/", "x-api-key", "a"), r("http://h/", "x-api-key", "b"), false},
		{"api-key", outbound.ByCredential, r("http://h/", "api-key", "a"), r("http://h/", "x-api-key", "a"), false},
		{"x-goog-api-key", outbound.ByCredential, r("http://h/", "x-goog-api-key", "a"), r("http://h/", "x-goog-api-key", "b"), false},
		{"query", outbound.ByCredential, r("http://h/?key=a&x=1"), r("http://h/?x=2&key=a"), true},
		{"other query", outbound.ByCredential, r("http://h/?key=a"), r("http://h/?key=b"), false},
		{"no key", outbound.ByCredential, r("http://h/?monkey=a"), r("http://h/?monkey=b"), true},
		{"AWS signature", outbound.ByCredential,
			r("http://h/", "Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20261125/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa"),
			r("http://h/", "Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20261126/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=bb"), true},
		{"other AWS account", outbound.ByCredential,
			r("http://h/", "Authorization", "AWS4-HMAC-SHA256 Credential=AKID/20261125/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa"),
			r("http://h/", "Authorization", "AWS4-HMAC-SHA256 Credential=AKIE/20261125/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa"), false},
	} {
		a, err := c.key(c.a)
		b, also := c.key(c.b)
		if err != nil || also != nil || (a == b) != c.same {
			t.Errorf("%s: %v and %v, %v, %v", c.name, a, b, err, also)
		}
		if strings.Contains(a.String(), "AKID") || strings.Contains(a.String(), "Bearer") {
			t.Errorf("%s: a credential is in the key %v", c.name, a)
		}
	}
}
