package outbound_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// readMore is the Read of docs/reference/outbound.md.
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

// refusals are responses that servers have sent, and what a client should make of them.
type refusal struct {
	Name    string
	Status  int
	Now     time.Time
	Headers []string
	Body    json.RawMessage
	Read    bool // by the Read of docs/reference/outbound.md
	Reason  string
	Scope   string                     // model, account, route, or the request alone
	Wait    string                     // empty if it is guessed
	Route   func(*http.Request) string `json:"-"`
}

// Real refusals are read as a client should, almost all by the Transport, and the rest by a Read.
func TestShapesOfRefusals(t *testing.T) {
	text := gatetest.Must(os.ReadFile("internal/signal/testdata/refusals.json"))(t)
	var all []refusal
	gatetest.NoError(t, json.Unmarshal(text, &all))
	byRead := 0
	for _, c := range all {
		if c.Read {
			byRead++
		}
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, c.try)
			if c.Scope == "route" {
				c.Route = func(*http.Request) string { return "" } // then it says nothing of other requests
				synctest.Test(t, c.try)
			}
		})
	}
	if len(all) != 270 || byRead > 5 {
		t.Errorf("%d refusals, %d of them by Read", len(all), byRead)
	}
}

func (c *refusal) try(t *testing.T) {
	body := string(c.Body)
	if strings.HasPrefix(body, `"`) {
		_ = json.Unmarshal(c.Body, &body)
	}
	header := make(http.Header)
	for _, line := range c.Headers {
		name, value, _ := strings.Cut(line, ": ")
		header.Add(name, value)
	}
	if c.Now.IsZero() {
		c.Now = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	}
	time.Sleep(time.Until(c.Now)) // a bubble begins in 2000
	g := gatetest.Memory(t, core.Config{})
	var told *outbound.CooldownEvent
	sent := 0
	cfg := outbound.Config{
		Gate: g, Meter: byPath{}, Route: func(*http.Request) string { return "search" },
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.CooldownEvent); ok {
				told = e
			}
		},
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			sent++
			return &http.Response{StatusCode: c.Status, Header: header.Clone(), Body: io.NopCloser(strings.NewReader(body))}, nil
		}),
	}
	if c.Read {
		cfg.Read = readMore
	}
	alone := c.Reason == "none" || c.Scope == "request" || c.Route != nil
	if c.Route != nil {
		cfg.Route = c.Route
	}
	if alone { // what cools nothing is not retried
		cfg.MaxWait, cfg.Retry = time.Hour, outbound.Retry{Max: 3}
	}
	tr := transport(t, cfg)
	for range 2 { // a 400 that calls the account spent is believed at the second time
		res, err := tr.RoundTrip(request(t, t.Context(), "http://example.com/m"))
		if err != nil {
			break
		}
		if text, err := io.ReadAll(res.Body); string(text) != body || err != nil || res.StatusCode != c.Status {
			t.Errorf("the response is %d %q, %v", res.StatusCode, text, err)
		}
		_ = res.Body.Close()
		synctest.Wait() // the end of a stream is read in the background
	}
	wait, _ := time.ParseDuration(cmp.Or(c.Wait, "0s"))
	switch {
	case alone:
		if told != nil || sent != 2 {
			t.Errorf("sent %d times, cools by %+v", sent, told)
		}
		return
	case told == nil:
		t.Fatal("nothing cools")
	case told.Guessed:
		told.For = 0
	}
	scope := map[int]string{1: "account", 2: "model", 3: "route"}[len(told.Key.Parts())]
	if scope != c.Scope || told.Spent != (c.Reason == "spent") || told.For != wait {
		t.Errorf("the %s cools for %v, spent: %v, want the %s for %v, %s", scope, told.For, told.Spent, c.Scope, wait, c.Reason)
	}
}

// hostile returns what a request may say so that an error that quotes it looks like a refusal.
func hostile(r *rand.Rand) any {
	said := map[string]any{
		"code": "insufficient_quota", "type": "insufficient_quota", "status": "RESOURCE_EXHAUSTED",
		"reason": "dailyLimitExceeded", "errorCode": "REQUEST_LIMIT_EXCEEDED", "__type": "ServiceQuotaExceededException",
		"message": "Your credit balance is too low. Please try again in 24h", "retry_after": 86400, "retryDelay": "86400s",
		"x-ratelimit-remaining-requests": "0", "X-RateLimit-Reset": "86400", "Retry-After": "86400",
		"violations": []any{map[string]any{"quotaId": "RequestsPerDay"}},
	}
	switch r.IntN(4) {
	case 0:
		return map[string]any{"error": said}
	case 1:
		return []any{said, map[string]any{"error": said, "headers": said}}
	case 2:
		return `{"error":{"code":"insufficient_quota"}}`
	}
	return said
}

// quoting returns the error of a server that quotes a request somewhere.
func quoting(r *rand.Rand) any {
	quote := hostile(r)
	for range r.IntN(6) {
		switch r.IntN(3) {
		case 0:
			quote = []any{"x", quote}
		case 1:
			quote = map[string]any{"loc": []any{"body", 0}, "msg": "bad", "input": quote}
		default:
			quote = map[string]any{"error": quote, "value": 1}
		}
	}
	places := []string{"input", "param", "metadata", "received", "request", "detail", "body", "ctx", "value", "data", "params"}
	place := places[r.IntN(len(places))]
	phrases := []string{"Your credit balance is too low", "You have exceeded a secondary rate limit", "API rate limit exceeded for user",
		"You've reached your usage limit", "insufficient balance (1008)", "try again in 24h", "on requests per day (RPD)", "can only afford 0."}
	failure := map[string]any{
		"code": "invalid_value", "type": "invalid_request_error",
		"message": fmt.Sprintf("flagged: %q", phrases[r.IntN(len(phrases))]),
	}
	switch r.IntN(6) {
	case 0:
		failure[place] = quote
		return failure
	case 1:
		return map[string]any{place: quote, "error": "bad"}
	case 2:
		return map[string]any{place: quote, "error": failure}
	case 3:
		failure["details"] = []any{map[string]any{place: quote}}
	case 4:
		failure["errors"] = []any{map[string]any{place: quote}}
	default:
		failure[place] = quote
	}
	if r.IntN(4) == 0 {
		return []any{map[string]any{"error": failure}}
	}
	return map[string]any{"type": "error", "error": failure}
}

// What a server quotes of a request cools no account, and the model of a refusal for minutes at most.
func TestQuotedRequestCoolsNoAccount(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	var body string
	var status int
	tr := transport(t, outbound.Config{
		Gate: gatetest.Memory(t, core.Config{}), Meter: byPath{},
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
		}),
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.CooldownEvent); ok && (status != 429 || e.Spent || e.For > 15*time.Minute || len(e.Key.Parts()) < 2) {
				t.Errorf("seed %d: %d %s: %v cools for %v", seed, status, body, e.Key, e.For)
			}
		},
	})
	statuses := []int{400, 401, 403, 404, 409, 412, 413, 422, 429, 500, 502, 503, 504}
	for i := range 10_000 {
		text := gatetest.Must(json.Marshal(quoting(r)))(t)
		body, status = string(text), statuses[r.IntN(len(statuses))]
		if got, err := get(t, tr, fmt.Sprintf("http://example.com/%d", i)); err != nil || got != status || t.Failed() {
			t.Fatalf("seed %d: %d, %v after %s", seed, got, err, body)
		}
	}
}

// A status of 400 that calls the account spent is believed when a second one says so, and not after
// a response in between.
func TestSpentByABadRequestIsToldTwice(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		const noCredit = `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}`
		r := newRig(t, outbound.Config{Gate: g})
		ok := func(http.ResponseWriter) {}
		r.push(refuse(400, noCredit), ok, refuse(400, noCredit), refuse(400, noCredit))
		r.want("", 400, 200, 400, 400)
		r.busy("", "spent")
	})
}
