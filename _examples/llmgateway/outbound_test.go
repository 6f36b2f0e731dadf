package main_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// outboundSDKs are SDKs through an HTTP client. They are as a program makes them, except for it.
var outboundSDKs = []struct {
	name   string
	form   provider.Form
	stream func(*http.Client) func(t *testing.T, url string, usage bool) result
}{{"openai-go", provider.OpenAI, openAIChat}, {"anthropic-sdk-go", provider.Anthropic, anthropicMessages}}

// outboundClient starts a server of a provider, and returns a client under shared limits. The server
// has TLS, because openai-go sends no key without it through a client of its caller's.
func outboundClient(t *testing.T, p *provider.Provider, change func(*outbound.Config)) (*http.Client, string, <-chan outbound.RequestEvent) {
	t.Helper()
	u := httptest.NewTLSServer(p)
	t.Cleanup(u.Close)
	meter, err := llm.NewOutbound(llm.OutboundConfig{})
	if err != nil {
		t.Fatal(err)
	}
	sent := make(chan outbound.RequestEvent, 100)
	cfg := outbound.Config{
		Base: u.Client().Transport, Gate: inMemory(nil), Meter: meter, MaxWait: time.Minute,
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.RequestEvent); ok {
				sent <- *e
			}
		},
		Rules: []outbound.Rule{{
			Policy: core.Must(core.NewPolicy(core.PolicyConfig{
				Name: "tokens", Unit: core.UnitTokens, Algorithm: core.PerMinute(1_000_000),
			})),
			Key: outbound.ByModel,
		}},
	}
	change(&cfg)
	tr, err := outbound.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &http.Client{Transport: tr}, u.URL, sent
}

// An SDK that is given the client works as ever, and a request that waits for room looks like a slow
// one to it: nothing is retried.
func TestOutboundSDKs(t *testing.T) {
	for _, s := range outboundSDKs {
		t.Run(s.name, func(t *testing.T) {
			p := provider.New(provider.Config{
				Form: s.form, Limits: []provider.Limit{{Unit: provider.Requests, N: 5, Per: time.Second, Burst: 2}},
				Usage: func(provider.Request) (int64, int64) { return 11, 22 },
			})
			client, url, sent := outboundClient(t, p, func(cfg *outbound.Config) {
				cfg.Rules = append(cfg.Rules, outbound.Rule{
					Policy: core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Rate: 5, Per: time.Second, Burst: 1}})),
					Key:    outbound.ByModel,
				})
			})
			for range 4 {
				if r := s.stream(client)(t, url, true); r.Text != "hello" || r.Input+r.Output != 33 || r.err != nil {
					t.Fatalf("%+v", r)
				}
			}
			if n := p.Counts(); n.Accepted != 4 || n.Refused > 0 || len(sent) != 4 {
				t.Errorf("%+v, %d events", n, len(sent))
			}
		})
	}
}

// A refusal that the SDK sees makes it wait as the provider says, and its retry finds the cooldown
// over: it waits once. With Config.Retry the SDK sees no refusal.
func TestOutboundSDKsWaitOnce(t *testing.T) {
	for _, s := range outboundSDKs {
		for _, retries := range []int{0, 3} {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				p := provider.New(provider.Config{Form: s.form})
				client, url, sent := outboundClient(t, p, func(cfg *outbound.Config) { cfg.Retry.Max = retries })
				if r := s.stream(client)(t, url, true); r.err != nil {
					t.Fatal(r.err)
				}
				if len(sent) != 1 {
					t.Fatal("the SDK did not use the client")
				}
				<-sent
				p.Close("model-1", 2*time.Second)
				if r := s.stream(client)(t, url, true); r.Text != "hello" || r.err != nil {
					t.Fatalf("%+v", r)
				}
				if n := p.Counts(); n.Refused != 1 || n.Accepted != 2 {
					t.Errorf("%+v", n)
				}
				first := <-sent
				switch {
				case retries > 0:
					if first.Sent != 2 || first.Status != http.StatusOK || len(sent) > 0 {
						t.Errorf("%+v", first)
					}
				case first.Status != http.StatusTooManyRequests:
					t.Errorf("%+v", first)
				default: // the retry of the SDK
					if again := <-sent; again.Status != http.StatusOK || again.Waited > 0 {
						t.Errorf("%+v", again)
					}
				}
			})
		}
	}
}

// An SDK takes a BusyError for a broken connection and passes it on after its retries.
func TestOutboundSDKsTellBusy(t *testing.T) {
	for _, s := range outboundSDKs {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p := provider.New(provider.Config{Form: s.form})
			client, url, _ := outboundClient(t, p, func(cfg *outbound.Config) {
				cfg.Rules[0].Policy = core.Must(core.NewPolicy(core.PolicyConfig{Name: "none", Unit: core.UnitTokens, Algorithm: core.DenyAll{}}))
			})
			err := s.stream(client)(t, url, true).err
			var busy *outbound.BusyError
			if !errors.As(err, &busy) || busy.Rule != "none" || !strings.Contains(err.Error(), "waiting does not help") {
				t.Errorf("%v", err)
			}
			if n := p.Counts(); n.Accepted > 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}
