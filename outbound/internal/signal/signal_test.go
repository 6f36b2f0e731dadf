package signal_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/outbound/internal/signal"
)

var now = time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)

// header makes headers of lines.
func header(lines ...string) http.Header {
	h := make(http.Header)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h.Add(name, value)
	}
	return h
}

// A refusal that a server has sent says what it is, whom it concerns, how long to wait, and what is
// left. outbound reads the same file through a Transport.
func TestRecordedRefusals(t *testing.T) {
	text := gatetest.Must(os.ReadFile("testdata/refusals.json"))(t)
	var cases []struct {
		Name, Source string
		Status       int
		Now          time.Time
		Headers      []string
		Body         json.RawMessage
		Read         bool // by a Config.Read of outbound alone
		Reason       string
		Scope        string
		Wait         string
		Left         []signal.Remaining
	}
	gatetest.NoError(t, json.Unmarshal(text, &cases))
	reasons := map[string]signal.Reason{"none": signal.None, "slow": signal.Slow, "loaded": signal.Loaded, "spent": signal.Spent}
	scopes := map[string]signal.Scope{
		"": signal.Model, "model": signal.Model, "account": signal.Account, "route": signal.Route, "request": signal.Request,
	}
	for _, c := range cases {
		h := header(c.Headers...)
		if c.Read || h.Get("Content-Type") == "text/event-stream" {
			continue
		}
		var page string
		if json.Unmarshal(c.Body, &page) == nil {
			c.Body = []byte(page)
		}
		if c.Now.IsZero() {
			c.Now = now
		}
		s := signal.Read(c.Status, h, c.Body, c.Now)
		wait, _ := time.ParseDuration(cmp.Or(c.Wait, "0s"))
		if s.Reason != reasons[c.Reason] || s.Scope != scopes[c.Scope] || s.Wait != wait {
			t.Errorf("%s: %+v, want %s of the %s for %v", c.Name, s, c.Reason, c.Scope, wait)
		}
		other := func(r signal.Remaining) bool { return !slices.Contains(s.Remaining, r) }
		if c.Left != nil && (len(s.Remaining) != len(c.Left) || slices.ContainsFunc(c.Left, other)) {
			t.Errorf("%s: %+v are left, want %+v", c.Name, s.Remaining, c.Left)
		}
		if s := signal.Read(http.StatusOK, h, nil, c.Now); s.Reason != signal.None || s.Wait != 0 || s.Scope != signal.Model {
			t.Errorf("%s: with a status of 200 it says %+v", c.Name, s)
		}
	}
}

// No header and no body is too long or too deep, and no more is read of them than makes sense.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		name, retryAfter, body string
		want                   time.Duration
	}{
		{"more bytes than are read", "7," + strings.Repeat("x", 1<<20) + ",99", "", 7 * time.Second},
		{"deep nesting", "", strings.Repeat(`{"a":[`, 5000) + `"retryDelay"`, 0},
	} {
		s := signal.Read(http.StatusTooManyRequests, header("Retry-After: "+c.retryAfter), []byte(c.body), now)
		if s.Wait != c.want || s.Reason == signal.None {
			t.Errorf("%s: waits %v, reason %v, want %v", c.name, s.Wait, s.Reason, c.want)
		}
	}
	many := http.Header{"X-Ratelimit-Reset": nil, "X-Ratelimit-Remaining": {"3"}} // one without values
	if got := signal.Read(http.StatusOK, many, nil, now).Remaining; len(got) != 1 || got[0].Remaining != 3 {
		t.Errorf("%+v", got)
	}
	for i := range 1000 {
		many.Set("X-Ratelimit-Remaining-Requests-"+strings.Repeat("a", i), "1")
	}
	if n := len(signal.Read(http.StatusOK, many, nil, now).Remaining); n > 32 {
		t.Errorf("%d limits were kept of one response", n)
	}
}

// Every form in which the test provider refuses tells its wait, and none less than that.
func TestFormsOfProvider(t *testing.T) {
	at := now.Add(300 * time.Millisecond)
	unclear := map[provider.Form]signal.Signal{
		provider.Unclear: {Reason: signal.Slow}, provider.Overloaded: {Reason: signal.Loaded}, provider.Spent: {Reason: signal.Spent, Scope: signal.Account},
	}
	for _, form := range append(slices.Collect(maps.Keys(unclear)), provider.Forms...) {
		p := provider.New(provider.Config{Form: form, Now: func() time.Time { return at },
			Limits: []provider.Limit{{Unit: provider.Requests, N: 1, Per: 4500 * time.Millisecond}}})
		var w *httptest.ResponseRecorder
		for range 2 {
			w = httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(`{"model":"m"}`)))
		}
		s := signal.Read(w.Code, w.Header(), w.Body.Bytes(), at)
		clear := s.Reason != signal.None && s.Reason != signal.Spent && s.Scope == signal.Model && s.Wait >= 4500*time.Millisecond && s.Wait <= 5500*time.Millisecond
		if want, ok := unclear[form]; ok {
			clear = s.Reason == want.Reason && s.Scope == want.Scope && s.Wait == 0
		}
		if !clear {
			t.Errorf("%v: %d %v: %+v", form, w.Code, w.Header(), s)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(429, "Retry-After", "5", "X-Ratelimit-Remaining-Tokens", "0", `{"error":{"code":"insufficient_quota"}}`)
	f.Add(403, "Anthropic-Ratelimit-Tokens-Reset", "2026-11-25T00:00:45Z", "Retry-After", "Wed, 25 Nov 2026 00:00:45 GMT", `[{"a":[1,{}]}]`)
	f.Add(429, "Ratelimit", `"a";r=0;t=5`, "Ratelimit-Policy", `"a";q=1;w=5;qu="tokens"`, `{"retryDelay":"1e99s"}`)
	f.Add(503, "Ratelimit", "limit=1, remaining=0, reset=1", "X-Ratelimit-Reset", "1e30", "")
	f.Fuzz(func(t *testing.T, status int, name1, value1, name2, value2, body string) {
		h := http.Header{
			http.CanonicalHeaderKey(name1): {value1},
			http.CanonicalHeaderKey(name2): {value2, value1},
		}
		s := signal.Read(status, h, []byte(body), now)
		if s.Wait < 0 || s.Wait > signal.MaxWait || s.Wait > 0 && s.Reason == signal.None {
			t.Errorf("%+v", s)
		}
		for _, r := range s.Remaining {
			if r.Remaining < 0 || r.Limit < 0 || r.Reset < 0 || r.Reset > signal.MaxWait || r.Window < 0 || r.Name == "" {
				t.Errorf("%+v", r)
			}
		}
	})
}

// A response that says nothing costs the request nothing.
func TestReadAllocatesNothingForPlainResponses(t *testing.T) {
	h := header("Content-Type: application/json", "Date: Wed, 25 Nov 2026 00:00:00 GMT", "Content-Length: 12", "X-Request-Id: 1")
	if n := testing.AllocsPerRun(100, func() { signal.Read(http.StatusOK, h, nil, now) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A header of many bytes costs no more than a short one.
func TestLongHeadersCostNothing(t *testing.T) {
	for _, name := range []string{"Retry-After", "Retry-After-Ms", "X-Ratelimit-Remaining", "X-Ratelimit-Limit", "X-Ratelimit-Reset",
		"X-Ratelimit-Policy", "Ratelimit", "Ratelimit-Policy", "Anthropic-Ratelimit-Unified-Status"} {
		for _, part := range []string{"1,", "x,", ",", `"a";r=1;t=2,`} {
			work := func(bytes int) float64 {
				h := header("X-Ratelimit-Remaining: 1")
				h[name] = []string{strings.Repeat(part, bytes/len(part))}
				return testing.AllocsPerRun(3, func() { signal.Read(http.StatusTooManyRequests, h, nil, now) })
			}
			if long, short := work(9<<20), work(2<<10); long > short+1 {
				t.Errorf("%s of %q: %v allocations for 9 MB, %v for 2 KB", name, part, long, short)
			}
		}
	}
}
