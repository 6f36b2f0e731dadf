package outbound_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

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
		"You've reached your usage limit", "try again in 24h", "on requests per day (RPD)", "can only afford 0."}
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
	statuses := []int{400, 401, 403, 404, 409, 413, 422, 429, 500, 502, 503, 504}
	for i := range 10_000 {
		text, err := json.Marshal(quoting(r))
		if err != nil {
			t.Fatal(err)
		}
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
