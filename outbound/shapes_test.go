package outbound_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// readMore is the Read of docs/outbound.md.
func readMore(res *http.Response, head []byte) (outbound.Refusal, bool) {
	text := string(head) // of a status that may refuse
	if res.StatusCode == http.StatusOK && res.ContentLength >= 0 && res.ContentLength < 10_000 {
		all, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		res.Body, text = io.NopCloser(bytes.NewReader(all)), string(all)
	}
	slow := outbound.Refusal{Reason: outbound.ReasonSlow, Scope: outbound.ScopeCredential}
	switch {
	// GraphQL of GitHub and of Shopify, and monday.com
	case strings.HasPrefix(text, `{"errors":[{"type":"RATE_LIMITED"`),
		strings.HasPrefix(text, `{"errors":[{"message":"Throttled"`),
		strings.HasPrefix(text, `{"error_code":"ComplexityException"`):
	case strings.HasPrefix(text, `{"error":{"message":"(#4)`): // Facebook, 400
		slow.Wait = time.Minute
	case strings.HasPrefix(text, `{"errors":[{"error":"RATE_LIMIT_REACHED"`): // Airtable
		slow.Wait = 30 * time.Second
	default:
		return outbound.Refusal{}, false
	}
	return slow, true
}

// shape is a response that public threads and manuals show, and what a client should make of it.
type shape struct {
	name, source string
	status       int
	header       string // lines
	body         string
	read         bool   // by the Read of docs/outbound.md
	cools        string // model, account, route, or nothing
	spent        bool
	wait         time.Duration // 0 if it is guessed
}

const (
	events = "Content-Type: text/event-stream"
	inJSON = "Content-Type: application/json"
)

var shapes = []shape{
	{"OpenAI, tokens", "platform.openai.com/docs/guides/rate-limits", 429, "retry-after-ms: 1200\nRetry-After: 2\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 6m0s",
		`{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}`, false, "model", false, 1200 * time.Millisecond},
	{"OpenAI, tokens, by its text", "community.openai.com", 429, "", `{"error":{"message":"Rate limit reached for gpt-4 on tokens per min. Please try again in 7m12s.","type":"tokens"}}`,
		false, "model", false, 432 * time.Second},
	{"OpenAI, requests of a day", "community.openai.com", 429, "", `{"error":{"message":"Rate limit reached for gpt-4o on requests per day (RPD): Limit 200. Please try again in 7m12s."}}`,
		false, "model", true, 432 * time.Second},
	{"OpenAI, no quota", "platform.openai.com/docs/guides/error-codes", 429, "", `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`, false, "account", true, 0},
	{"OpenAI, overloaded", "platform.openai.com/docs/guides/error-codes", 503, "", `{"error":{"message":"Slow down","code":"slow_down"}}`, false, "model", false, 0},
	{"OpenAI, a request above the limit", "vanderschaarlab/climb#1", 429, "", `{"error":{"message":"Request too large for gpt-4o on tokens per min","code":"rate_limit_exceeded"}}`,
		false, "nothing", false, 0},
	{"OpenAI, a failed response of a stream", "platform.openai.com/docs/api-reference/responses-streaming", 200, events,
		"data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}}}\n\n", false, "model", false, 0},
	{"OpenRouter, a code that is a number, in a stream", "openrouter.ai/docs/api-reference/streaming", 200, events, "data: {\"error\":{\"code\":429,\"message\":\"Rate limit exceeded\"}}\n\n",
		false, "model", false, 0},
	{"OpenRouter, a request above what is left", "can1357/oh-my-pi#9569", 402, "", `{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}`, false, "nothing", false, 0},
	{"OpenRouter, free models of a day", "openrouter.ai/docs/api-reference/limits", 429, "", `{"error":{"message":"Rate limit exceeded: free-models-per-day","code":429}}`, false, "account", true, 0},
	{"Azure, by its text", "microsoft/sample-app-aoai-chatGPT#406", 429, "", `{"error":{"code":"429","message":"Requests have exceeded token rate limit. Please retry after 9 seconds."}}`,
		false, "model", false, 9 * time.Second},
	{"Azure, milliseconds", "learn.microsoft.com/azure/ai-foundry", 429, "retry-after-ms: 850", `{"error":{"code":"429"}}`, false, "model", false, 850 * time.Millisecond},
	{"Anthropic, tokens", "docs.anthropic.com/en/api/errors", 429, "retry-after: 30", `{"type":"error","error":{"type":"rate_limit_error","message":"m"}}`, false, "model", false, 30 * time.Second},
	{"Anthropic, overloaded", "docs.anthropic.com/en/api/errors", 529, "", `{"type":"error","error":{"type":"overloaded_error"}}`, false, "model", false, 0},
	{"Anthropic, overloaded, with a status of 500", "BerriAI/litellm#8632", 500, "", `{"type":"error","error":{"type":"overloaded_error"}}`, false, "model", false, 0},
	{"Anthropic, overloaded in a stream", "docs.anthropic.com/en/api/errors", 200, events, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", false, "model", false, 0},
	{"Anthropic, no credit", "anthropics/anthropic-sdk-python", 400, "", `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`,
		false, "account", true, 0},
	{"Anthropic, the 5 hours of a subscription", "manaflow-ai/subrouter#24", 429, "anthropic-ratelimit-unified-status: rejected\nanthropic-ratelimit-unified-5h-status: rejected\nretry-after: 60", "",
		false, "account", false, time.Minute},
	{"Gemini, a minute", "google-gemini/gemini-cli", 429, "", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]},{"retryDelay":"31s"}]}}`,
		false, "model", false, 31 * time.Second},
	{"Gemini, a day", "google-gemini/gemini-cli", 429, "", `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]},{"retryDelay":"58s"}]}}`,
		false, "model", true, 58 * time.Second},
	{"Gemini, overloaded", "googleapis/python-genai", 503, "", `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`, false, "model", false, 0},
	{"Vertex AI", "google-gemini/gemini-cli#14831", 429, "", `[{"error":{"code":429,"errors":[{"reason":"rateLimitExceeded"}],"status":"RESOURCE_EXHAUSTED"}}]`, false, "model", false, 0},
	{"YouTube, the quota of a day", "developers.google.com/youtube/v3/docs/errors", 403, "", `{"error":{"code":403,"errors":[{"reason":"quotaExceeded"}]}}`, false, "account", true, 0},
	{"Drive, a user's rate", "developers.google.com/workspace/drive/api/guides/handle-errors", 403, "", `{"error":{"code":403,"errors":[{"reason":"userRateLimitExceeded"}]}}`, false, "account", false, 0},
	{"Bedrock", "docs.aws.amazon.com/bedrock", 429, "x-amzn-errortype: ThrottlingException:http://internal.amazon.com/coral/com.amazon.bedrock/", `{"message":"Too many tokens"}`, false, "model", false, 0},
	{"Bedrock, overloaded", "docs.aws.amazon.com/bedrock", 503, "x-amzn-errortype: ServiceUnavailableException", `{"message":"m"}`, false, "model", false, 0},
	{"AWS, throttled, with a status of 400", "docs.aws.amazon.com/AmazonECS", 400, "", `{"__type":"ThrottlingException","message":"Rate exceeded"}`, false, "model", false, 0},
	{"DynamoDB", "docs.aws.amazon.com/amazondynamodb", 400, "", `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"}`, false, "model", false, 0},
	{"S3", "docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html", 503, "", `<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`, false, "model", false, 0},
	{"EC2", "docs.aws.amazon.com/AWSEC2", 503, "", `<?xml version="1.0"?><Response><Errors><Error><Code>RequestLimitExceeded</Code></Error></Errors></Response>`, false, "model", false, 0},
	{"Amazon's SP-API", "amzn/selling-partner-api-docs#553", 429, "", `{"errors":[{"code":"QuotaExceeded","message":"You exceeded your quota"}]}`, false, "model", false, 0},
	{"Groq, tokens of a day", "continuedev/continue#10920", 429, "", `{"error":{"message":"Rate limit reached for model m on tokens per day (TPD): Limit 100000. Please try again in 9m38.016s."}}`,
		false, "model", true, 578016 * time.Millisecond},
	{"Groq, flex", "console.groq.com/docs/errors", 498, "", `{"error":{"code":"capacity_exceeded"}}`, false, "model", false, 0},
	{"Moonshot, overloaded", "openclaw#20999", 503, "", `{"error":{"type":"engine_overloaded_error"}}`, false, "model", false, 0},
	{"DeepSeek, no money", "api-docs.deepseek.com", 402, "", `{"error":{"message":"Insufficient Balance"}}`, false, "account", true, 0},
	{"GitHub, the hour", "docs.github.com/rest", 403, "x-ratelimit-remaining: 0\nx-ratelimit-reset: 600\nx-ratelimit-resource: core\nx-github-request-id: 1", `{"message":"API rate limit exceeded for user ID 1."}`,
		false, "account", false, 10 * time.Minute},
	{"GitHub, a secondary limit", "docs.github.com/rest", 403, "x-ratelimit-remaining: 4312", `{"message":"You have exceeded a secondary rate limit"}`, false, "account", false, time.Minute},
	{"GitHub, search", "cli/cli#10426", 403, "x-ratelimit-remaining: 0\nx-ratelimit-reset: 60\nx-ratelimit-resource: code_search\nx-github-request-id: 1", `{"message":"API rate limit exceeded"}`,
		false, "route", false, time.Minute},
	{"GitHub's GraphQL", "docs.github.com/graphql", 200, inJSON, `{"errors":[{"type":"RATE_LIMITED","message":"API rate limit exceeded"}]}`, true, "account", false, 0},
	{"Shopify's GraphQL", "shopify.dev/docs/api/usage/limits", 200, inJSON, `{"errors":[{"message":"Throttled","extensions":{"code":"THROTTLED"}}]}`, true, "account", false, 0},
	{"monday.com", "developer.monday.com/api-reference/docs/rate-limits", 200, inJSON, `{"error_code":"ComplexityException","status_code":429}`, true, "account", false, 0},
	{"Facebook", "developers.facebook.com/docs/graph-api/overview/rate-limiting", 400, "", `{"error":{"message":"(#4) Application request limit reached","type":"OAuthException","code":4}}`,
		true, "account", false, time.Minute},
	{"Airtable", "airtable.com/developers/web/api/rate-limits", 429, "", `{"errors":[{"error":"RATE_LIMIT_REACHED"}]}`, true, "account", false, 30 * time.Second},
	{"Linear", "linear.app/developers/rate-limiting", 400, "", `{"errors":[{"message":"Rate limit exceeded","extensions":{"code":"RATELIMITED"}}]}`, false, "model", false, 0},
	{"Stripe, an object in use", "docs.stripe.com/error-codes", 429, "", `{"error":{"code":"lock_timeout","type":"invalid_request_error"}}`, false, "nothing", false, 0},
	{"HubSpot, a day", "developers.hubspot.com/docs/api/usage-details", 429, "", `{"status":"error","message":"You have reached your daily limit.","errorType":"RATE_LIMIT","policyName":"DAILY"}`,
		false, "account", true, 0},
	{"HubSpot, ten seconds", "developers.hubspot.com/docs/api/usage-details", 429, "", `{"status":"error","errorType":"RATE_LIMIT","policyName":"TEN_SECONDLY_ROLLING"}`, false, "model", false, 0},
	{"Discord, a bucket of routes", "docs.discord.com/developers/topics/rate-limits", 429, "x-ratelimit-remaining: 0\nx-ratelimit-reset-after: 1.5\nx-ratelimit-bucket: abcd", `{"retry_after":1.5,"global":false}`,
		false, "route", false, 1500 * time.Millisecond},
	{"a gateway with a wait", "nginx", 502, "Retry-After: 4", "<html>", false, "account", false, 4 * time.Second},
	{"Okta", "developer.okta.com/docs/reference/rl-best-practices", 429, "x-rate-limit-remaining: 0\nx-rate-limit-reset: 60", `{"errorCode":"E0000047"}`, false, "model", false, time.Minute},
	{"Slack", "api.slack.com/apis/rate-limits", 429, "Retry-After: 30", `{"ok":false,"error":"ratelimited"}`, false, "model", false, 30 * time.Second},
}

// Real refusals are read as a client should: 46 of 51 by the Transport, and the rest by a Read.
func TestShapesOfRefusals(t *testing.T) {
	byRead := 0
	for _, c := range shapes {
		if c.read {
			byRead++
		}
		var seen atomic.Pointer[outbound.CooldownEvent]
		cfg := outbound.Config{
			Gate: gatetest.Memory(t, core.Config{}), Meter: byPath{}, Route: func(*http.Request) string { return "search" },
			Observe: func(_ context.Context, e core.Event) {
				if e, ok := e.(*outbound.CooldownEvent); ok {
					seen.Store(e)
				}
			},
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				h := make(http.Header)
				for line := range strings.Lines(c.header) {
					name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
					h.Add(name, value)
				}
				return &http.Response{StatusCode: c.status, Header: h, Body: io.NopCloser(strings.NewReader(c.body))}, nil
			}),
		}
		if c.read {
			cfg.Read = readMore
		}
		tr := transport(t, cfg)
		r := request(t, t.Context(), "http://example.com/m")
		for range 2 { // a 400 that calls the account spent is believed at the second time
			res, err := tr.RoundTrip(r)
			if err != nil {
				break
			}
			if text, err := io.ReadAll(res.Body); string(text) != c.body || err != nil {
				t.Errorf("%s: the body is %q, %v", c.name, text, err)
			}
			_ = res.Body.Close()
			if strings.Contains(c.header, events) {
				gatetest.Eventually(t, c.name, func() bool { return seen.Load() != nil })
			}
		}
		told := seen.Load()
		if told == nil {
			if c.cools != "nothing" {
				t.Errorf("%s: nothing cools", c.name)
			}
			continue
		}
		cools := map[int]string{1: "account", 2: "model", 3: "route"}[len(told.Key.Parts())]
		wait := told.For
		if told.Guessed {
			wait = 0
		}
		if cools != c.cools || told.Spent != c.spent || wait != c.wait {
			t.Errorf("%s: the %s cools for %v, spent: %v, want the %s for %v, %v", c.name, cools, wait, told.Spent, c.cools, c.wait, c.spent)
		}
	}
	if len(shapes) != 51 || byRead > 6 {
		t.Errorf("%d shapes, %d of them by Read", len(shapes), byRead)
	}
}
