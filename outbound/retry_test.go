package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
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
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL, body)
				if err != nil {
					t.Fatal(err)
				}
				if c.getBody != nil {
					r.GetBody = c.getBody
				}
				res, err := tr.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				text, err := io.ReadAll(res.Body)
				if res.StatusCode != c.status || u.count() != c.sent || err != nil ||
					c.status != 200 && !strings.HasPrefix(string(text), "slow down") {
					t.Errorf("status %d after %d requests, %.20q, %v", res.StatusCode, u.count(), text, err)
				}
				_ = res.Body.Close()
				gatetest.Eventually(t, "the slot is free", func() bool { return holders(t, slot, u.URL) == 0 })
				if n := standing(t, g, policy, core.Must(outbound.ByHost(r))).Used; n != int64(c.sent) {
					t.Errorf("%d spent", n)
				}
			})
		})
	}
}

// A context that ends at a refusal settles it before the request gets a new body. The race detector
// sees whether both use the request at a time.
func TestRetryOfARequestWhoseContextEnds(t *testing.T) {
	settled := make(chan error, 1)
	g := gatetest.Memory(t, core.Config{Observe: func(_ context.Context, e core.Event) {
		if e, ok := e.(*core.ReservationEvent); ok {
			settled <- e.Err
		}
	}})
	ctx, cancel := context.WithCancel(t.Context())
	settles := make(chan struct{})
	tr := transport(t, outbound.Config{
		Gate: g, MaxWait: time.Minute, Retry: outbound.Retry{Max: 1},
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			cancel()
			return &http.Response{StatusCode: 429, Body: io.NopCloser(strings.NewReader("slow down"))}, nil
		}),
		Rules: []outbound.Rule{{
			Policy: gatetest.Limited(t, "a", gatetest.Frozen(10)), Key: outbound.ByHost,
			Settle: func(*http.Request, *http.Response, int64) int64 {
				close(settles)
				return 0
			},
		}},
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://example.com/", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = func() (io.ReadCloser, error) {
		<-settles
		return io.NopCloser(strings.NewReader("x")), nil
	}
	res, err := tr.RoundTrip(r)
	if err != nil || res.StatusCode != 429 {
		t.Fatal(res, err)
	}
	_ = res.Body.Close()
	if err := <-settled; err != nil {
		t.Error(err)
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

// A refusal that says nothing of other requests cools nothing, and is not retried.
func TestNoRetryWithoutACooldown(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){
		"of a resource":              refuse(403, noSearch, searchHeader()...),
		"costs too much":             refuse(402, tooLarge),
		"is above the limit":         refuse(429, tooLong, "Retry-After", "9"),
		"an object is in use":        refuse(429, `{"error":{"code":"lock_timeout"}}`),
		"tells no longer wait":       refuse(403, noSearch, searchHeader()[:6]...),
		"of a route without a Route": refuse(429, "{}", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset-After", "60", "X-Ratelimit-Bucket", "abcd"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, outbound.Config{MaxWait: time.Hour, Retry: outbound.Retry{Max: 3}})
			r.push(answer)
			if status, err := get(t, r.tr, r.URL); err != nil || status == http.StatusOK {
				t.Errorf("%d, %v", status, err)
			}
			if r.want("", 200); r.count() != 2 {
				t.Errorf("%d requests", r.count())
			}
		})
	}
}
