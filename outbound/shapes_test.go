package outbound_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
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

// refusals are responses that servers have sent, and what a client should make of them.
type refusal struct {
	Name    string
	Status  int
	Now     time.Time
	Headers []string
	Body    json.RawMessage
	Read    bool // by the Read of docs/outbound.md
	Reason  string
	Scope   string // model, account, route, or the request alone
	Wait    string // empty if it is guessed
}

// Real refusals are read as a client should, almost all by the Transport, and the rest by a Read.
func TestShapesOfRefusals(t *testing.T) {
	text, err := os.ReadFile("internal/signal/testdata/refusals.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []refusal
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	byRead := 0
	for _, c := range all {
		if c.Read {
			byRead++
		}
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, c.try)
		})
	}
	if len(all) != 94 || byRead > 5 {
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
	g := core.Must(core.NewMemory(core.Config{}))
	defer func() { _ = g.Close(t.Context()) }()
	var told *outbound.CooldownEvent
	cfg := outbound.Config{
		Gate: g, Meter: byPath{}, Route: func(*http.Request) string { return "search" },
		Observe: func(_ context.Context, e core.Event) {
			if e, ok := e.(*outbound.CooldownEvent); ok {
				told = e
			}
		},
		Base: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: c.Status, Header: header.Clone(), Body: io.NopCloser(strings.NewReader(body))}, nil
		}),
	}
	if c.Read {
		cfg.Read = readMore
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
	case c.Reason == "none" || c.Scope == "request":
		if told != nil {
			t.Errorf("%v cools for %v", told.Key, told.For)
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
