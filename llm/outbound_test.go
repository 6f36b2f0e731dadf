package llm_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// client is a client of a server under a budget of tokens or money.
type client struct {
	*testing.T
	gate   *core.Gate
	budget *core.Policy
	rt     http.RoundTripper
	url    string
}

func newClient(t *testing.T, unit core.Unit, cfg llm.OutboundConfig, server http.Handler, changes ...func(*outbound.Config)) *client {
	t.Helper()
	c := &client{T: t, budget: policy("budget", unit, 1e9)}
	s := httptest.NewServer(server)
	t.Cleanup(s.Close)
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	c.url = s.URL
	out := outbound.Config{
		Base: base, Gate: gatetest.Memory(t, core.Config{}), Meter: core.Must(llm.NewOutbound(cfg)),
		Rules: []outbound.Rule{{Policy: c.budget, Key: outbound.ByHost}},
	}
	for _, change := range changes {
		change(&out)
	}
	c.gate, c.rt = out.Gate, core.Must(outbound.New(out))
	return c
}

func (c *client) post(ctx context.Context, path, body string, header ...string) (*http.Response, error) {
	r := gatetest.Must(http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, strings.NewReader(body)))(c)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return c.rt.RoundTrip(r)
}

// used returns what is used of the budget, held or settled.
func (c *client) used() int64 {
	c.Helper()
	r, _ := http.NewRequest(http.MethodPost, c.url, nil)
	key := gatetest.Must(outbound.ByHost(r))(c)
	d := gatetest.Must(c.gate.Peek(c.Context(), core.Charge{Policy: c.budget, Key: key}))(c)
	return d.At(0).Used
}

// wantUsed waits until the budget counts that much, because the Transport settles in the background.
func (c *client) wantUsed(what string, want int64) {
	c.Helper()
	gatetest.Eventually(c.T, fmt.Sprintf("%s: used %d, want %d", what, c.used(), want), func() bool { return c.used() == want })
}

// A client under a budget counts of every recorded response what the script expects, and gets the
// body as it is.
func TestOutboundCases(t *testing.T) {
	for _, c := range llmCases(t) {
		t.Run(filepath.Base(c.dir), func(t *testing.T) {
			for _, zip := range []bool{false, true} {
				seed := rand.Uint64()
				t.Logf("gzip %v, seed %d", zip, seed)
				maps.DeleteFunc(c.header, func(name string, _ []string) bool { // it would lower the budget
					return strings.Contains(name, "Ratelimit")
				})
				client := newClient(t, core.UnitTokens, llm.OutboundConfig{}, c.answer(len(c.body), zip, rand.New(rand.NewPCG(seed, 0))))
				res, err := client.post(t.Context(), c.path, c.ask, "Content-Type", c.contentType)
				if c.Outcome == "other" { // not measured
					if err == nil {
						res.Body.Close()
					}
					return
				}
				gatetest.NoError(t, err)
				gatetest.Equal(t, read(t, res), string(c.shown()), "the caller got")
				want := c.usage().Total()
				for _, o := range c.Also {
					want += o.usage().Total()
				}
				switch c.Outcome {
				case "reported", "failed":
					client.wantUsed(c.Outcome, want)
				default: // some of it is estimated
					gatetest.Eventually(t, c.Outcome, func() bool { return client.used() >= want })
				}
			}
		})
	}
}

const chatOf = `{"model":"m","max_tokens":%d,"messages":[{"role":"user","content":"hello there"}]%s}`

// What has no usage counts as its estimate or as what was seen, and what was refused as nothing.
func TestOutboundEndings(t *testing.T) {
	const prompt = 4 // "user" and "hello there"
	refuse := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }
	hello := `data: {"choices":[{"delta":{"content":"hello"}}]}` + "\n\n"
	for name, c := range map[string]struct {
		stream string
		answer http.HandlerFunc
		counts int64
	}{
		"refused":                  {"", refuse, 0},
		"no response":              {"", abort, prompt + 50},
		"broken off by the caller": {"", sent("", `{"choices":[{"message":{"content":"hi"}}]}`), prompt},
		"a stream, broken off": {`,"stream":true`, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			gatetest.Contains(t, string(body), `"include_usage":true`, "sent")
			w.Header().Set("Content-Type", "text/event-stream")
			write(hello, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })(w, r)
		}, prompt + 2},
	} {
		t.Run(name, func(t *testing.T) {
			client := newClient(t, core.UnitTokens, llm.OutboundConfig{}, c.answer)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if res, err := client.post(ctx, chatPath, fmt.Sprintf(chatOf, 50, c.stream)); err == nil {
				_, _ = io.CopyN(io.Discard, res.Body, 10)
				cancel()
				res.Body.Close()
			}
			client.wantUsed(name, c.counts)
		})
	}
}

// The chunk that the server adds for the usage is hidden from a caller that did not ask for it.
func TestOutboundHidesUsage(t *testing.T) {
	p := provider.New(provider.Config{Usage: func(provider.Request) (int64, int64) { return 11, 22 }})
	for _, c := range []struct {
		cfg    llm.OutboundConfig
		stream string
		shows  bool
		counts int64
	}{
		{llm.OutboundConfig{}, `,"stream":true`, false, 33},
		{llm.OutboundConfig{}, `,"stream":true,"stream_options":{"include_usage":true}`, true, 33},
		{llm.OutboundConfig{KeepBody: true}, `,"stream":true`, true, 33}, // this server states it always
		{llm.OutboundConfig{CountsCap: true}, `,"stream":true`, false, 4 + 50},
	} {
		client := newClient(t, core.UnitTokens, c.cfg, p)
		res := gatetest.Must(client.post(t.Context(), "/v1/chat/completions", fmt.Sprintf(chatOf, 50, c.stream)))(t)
		if body := read(t, res); strings.Contains(body, "usage") != c.shows || !strings.HasSuffix(body, "data: [DONE]\n\n") {
			t.Errorf("%+v: %s", c.cfg, body)
		}
		client.wantUsed(c.stream, c.counts)
	}
}

// Money counts by the tariff, and input and output tokens each by their own unit.
func TestOutboundUnits(t *testing.T) {
	p := provider.New(provider.Config{Usage: func(provider.Request) (int64, int64) { return 1000, 200 }})
	models := map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: llm.Price{Input: 3_000_000, Output: 15_000_000}}}}
	for unit, want := range map[core.Unit]int64{
		core.UnitTokens: 1200, core.UnitInputTokens: 1000, core.UnitOutputTokens: 200, core.UnitMicroDollars: 3000 + 3000,
	} {
		for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
			c := newClient(t, unit, llm.OutboundConfig{Models: models}, p)
			res := gatetest.Must(c.post(t.Context(), path, fmt.Sprintf(chatOf, 50, "")))(t)
			_ = read(t, res)
			c.wantUsed(path, want)
		}
	}
}

// A body that its headers sign is sent as it is, and one that they do not asks for the usage.
func TestOutboundKeepsSignedBodies(t *testing.T) {
	meter := core.Must(llm.NewOutbound(llm.OutboundConfig{}))
	const body = `{"model":"m","stream":true,"messages":[]}`
	for _, c := range []struct {
		name, value string
		keeps       bool
	}{
		{"Authorization", "Bearer key", false},
		{"Authorization", "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c", true},
		{"Authorization", `Digest username="u", qop=auth-int`, true},
		{"Content-MD5", "a", true},
		{"Digest", "sha-256=a", true},
		{"Content-Digest", "sha-256=:a:", true},
		{"X-Amz-Content-Sha256", "a", true},
	} {
		r := httptest.NewRequest(http.MethodPost, "https://example.com/v1/chat/completions", strings.NewReader(body))
		r.Header.Set(c.name, c.value)
		if m, err := meter.Measure(r); m == nil || err != nil {
			t.Fatal(m, err)
		}
		if text, err := io.ReadAll(r.Body); (string(text) == body) != c.keeps || err != nil {
			t.Errorf("%s: %s: %s, %v", c.name, c.value, text, err)
		}
	}
}

// What cannot be measured is sent as it is, and is no request to a model.
func TestOutboundBodies(t *testing.T) {
	var sent string
	client := newClient(t, core.UnitTokens, llm.OutboundConfig{MaxBody: 1000}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if int64(len(text)) != r.ContentLength || err != nil {
			t.Errorf("sent %d bytes of %d, %v", len(text), r.ContentLength, err)
		}
		sent = string(text)
	}), func(cfg *outbound.Config) { cfg.Rules = nil })
	for name, c := range map[string]struct{ path, body, encoding string }{
		"too long":        {"chat/completions", `{"model":"` + strings.Repeat("m", 1000) + `"}`, ""},
		"no JSON":         {"chat/completions", "model", ""},
		"no model":        {"chat/completions", `{}`, ""},
		"twice":           {"chat/completions", `{"model":"a","model":"b"}`, ""},
		"empty":           {"chat/completions", "", ""},
		"a stored prompt": {"responses", `{"prompt":{"id":"p"}}`, ""},
		"encoded":         {"chat/completions", fmt.Sprintf(chatOf, 5, ""), "br"},
		"models":          {"models", "anything", ""},
		"counting":        {"messages/count_tokens", "anything", ""},
	} {
		res, err := client.post(t.Context(), "/v1/"+c.path, c.body, "Content-Encoding", c.encoding)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = res.Body.Close()
		gatetest.Equal(t, sent, c.body, "%s: sent", name)
	}
	r, _ := http.NewRequest(http.MethodPost, client.url+chatPath, nil)
	if res, err := client.rt.RoundTrip(r); err != nil {
		t.Errorf("no body: %v", err)
	} else {
		_ = res.Body.Close()
	}
	if _, err := llm.NewOutbound(llm.OutboundConfig{MaxBody: -1, MaxOutput: 1e10, StatedCost: 9, Routes: []llm.Route{{Path: "/x"}},
		Models: map[string]llm.Model{"m": {MaxOutput: -1}}}); err == nil ||
		strings.Count(err.Error(), "llm: OutboundConfig.") != 5 {
		t.Errorf("%v", err)
	}
}

// A Pool whose first upstream is busy sends the second one what it would have got alone.
func TestOutboundHidesUsageOfThePoolsNextUpstream(t *testing.T) {
	p := provider.New(provider.Config{Usage: func(provider.Request) (int64, int64) { return 11, 22 }})
	var upstreams []outbound.Upstream
	for name, limit := range map[string]int64{"busy": 1, "free": 1e9} {
		newClient(t, core.UnitTokens, llm.OutboundConfig{}, p, func(cfg *outbound.Config) {
			cfg.Rules[0].Policy = policy(name, core.UnitTokens, limit)
			upstreams = append(upstreams, outbound.Upstream{Name: name, Transport: core.Must(outbound.New(*cfg))})
		})
	}
	slices.SortFunc(upstreams, func(a, b outbound.Upstream) int { return strings.Compare(a.Name, b.Name) })
	client := newClient(t, core.UnitTokens, llm.OutboundConfig{}, p)
	client.rt = core.Must(outbound.NewPool(outbound.PoolConfig{Upstreams: upstreams}))
	res := gatetest.Must(client.post(t.Context(), chatPath, fmt.Sprintf(chatOf, 50, `,"stream":true`)))(t)
	if body := read(t, res); strings.Contains(body, "usage") || !strings.HasSuffix(body, "data: [DONE]\n\n") {
		t.Errorf("the caller got %s", body)
	}
}
