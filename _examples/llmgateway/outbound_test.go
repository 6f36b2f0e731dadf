package main_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// outboundSDKs send a streamed request through an HTTP client, and return the text and the tokens of
// the answer. They are as a program makes them, except for the client.
var outboundSDKs = []struct {
	name string
	form provider.Form
	ask  func(ctx context.Context, client *http.Client, url string) (text string, tokens int64, err error)
}{
	{"openai-go", provider.OpenAI, func(ctx context.Context, h *http.Client, url string) (string, int64, error) {
		client := openai.NewClient(openaioption.WithBaseURL(url+"/v1"), openaioption.WithAPIKey(apiKey),
			openaioption.WithHTTPClient(h))
		stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
			Model: "model-1", MaxTokens: openai.Int(20), Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
			StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
		})
		defer stream.Close()
		all := openai.ChatCompletionAccumulator{}
		for stream.Next() {
			all.AddChunk(stream.Current())
		}
		if err := stream.Err(); err != nil {
			return "", 0, err
		}
		return all.Choices[0].Message.Content, all.Usage.TotalTokens, nil
	}},
	{"anthropic-sdk-go", provider.Anthropic, func(ctx context.Context, h *http.Client, url string) (string, int64, error) {
		client := anthropic.NewClient(anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey(apiKey), anthropicoption.WithHTTPClient(h))
		stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
			Model: "model-1", MaxTokens: 20, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
		})
		defer stream.Close()
		all := anthropic.Message{}
		for stream.Next() {
			if err := all.Accumulate(stream.Current()); err != nil {
				return "", 0, err
			}
		}
		if err := stream.Err(); err != nil {
			return "", 0, err
		}
		return all.Content[0].Text, all.Usage.InputTokens + all.Usage.OutputTokens, nil
	}},
}

// sent are the requests that a Transport has sent or failed.
type sent struct{ events chan outbound.RequestEvent }

func (s *sent) observe(_ context.Context, e core.Event) {
	if e, ok := e.(*outbound.RequestEvent); ok {
		s.events <- *e
	}
}

// outboundClient starts a server of a provider, and returns a client under shared limits. The server
// has TLS, because openai-go sends no key without it through a client of its caller's.
func outboundClient(t *testing.T, p *provider.Provider, change func(*outbound.Config)) (*http.Client, string, *sent) {
	t.Helper()
	u := httptest.NewTLSServer(p)
	t.Cleanup(u.Close)
	meter, err := llm.NewOutbound(llm.OutboundConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sent{make(chan outbound.RequestEvent, 100)}
	cfg := outbound.Config{
		Base: u.Client().Transport, Gate: inMemory(nil), Meter: meter, MaxWait: time.Minute, Observe: s.observe,
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
	return &http.Client{Transport: tr}, u.URL, s
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
				text, tokens, err := s.ask(t.Context(), client, url)
				if text != "hello" || tokens != 33 || err != nil {
					t.Fatalf("%q, %d tokens, %v", text, tokens, err)
				}
			}
			if n := p.Counts(); n.Accepted != 4 || n.Refused > 0 || len(sent.events) != 4 {
				t.Errorf("%+v, %d events", n, len(sent.events))
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
				if _, _, err := s.ask(t.Context(), client, url); err != nil {
					t.Fatal(err)
				}
				if len(sent.events) != 1 {
					t.Fatal("the SDK did not use the client")
				}
				<-sent.events
				p.Close("model-1", 2*time.Second)
				if text, _, err := s.ask(t.Context(), client, url); text != "hello" || err != nil {
					t.Fatalf("%q, %v", text, err)
				}
				if n := p.Counts(); n.Refused != 1 || n.Accepted != 2 {
					t.Errorf("%+v", n)
				}
				first := <-sent.events
				switch {
				case retries > 0:
					if first.Sent != 2 || first.Status != http.StatusOK || len(sent.events) > 0 {
						t.Errorf("%+v", first)
					}
				case first.Status != http.StatusTooManyRequests:
					t.Errorf("%+v", first)
				default: // the retry of the SDK
					if again := <-sent.events; again.Status != http.StatusOK || again.Waited > 0 {
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
			_, _, err := s.ask(t.Context(), client, url)
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
