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
	text, err := os.ReadFile("testdata/refusals.json")
	if err != nil {
		t.Fatal(err)
	}
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
		Windows      map[string]struct {
			Limit, Remaining int64
			Reset            int64 `json:"reset_ms"`
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
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
		told := make(map[string]signal.Remaining)
		for _, r := range s.Remaining {
			told[r.Name] = r
		}
		for name, w := range c.Windows {
			r, ok := told[name]
			if !ok || r.Limit != w.Limit || r.Remaining != w.Remaining || r.Reset.Milliseconds() != w.Reset {
				t.Errorf("%s: %s has %+v, want %+v", c.Name, name, r, w)
			}
		}
		if c.Windows != nil && len(told) != len(c.Windows) {
			t.Errorf("%s: tells %v, want %v", c.Name, told, c.Windows)
		}
	}
}

// Each form of a wait is understood, and each that is none has a defined answer.
func TestWaits(t *testing.T) {
	const day = signal.MaxWait
	for _, c := range []struct {
		name string
		h    http.Header
		body string
		want time.Duration
	}{
		{"seconds", header("Retry-After: 5"), "", 5 * time.Second},
		{"decimal seconds", header("Retry-After: 0.25"), "", 250 * time.Millisecond},
		{"a date", header("Retry-After: Wed, 25 Nov 2026 00:00:45 GMT"), "", 45 * time.Second},
		{"a date of RFC 850", header("Retry-After: Wednesday, 25-Nov-26 00:00:45 GMT"), "", 45 * time.Second},
		{"a date that is past", header("Retry-After: Tue, 24 Nov 2026 23:59:59 GMT"), "", 0},
		{"the date of a server whose clock is an hour ahead", header("Date: Wed, 25 Nov 2026 01:00:00 GMT",
			"Retry-After: Wed, 25 Nov 2026 01:00:45 GMT"), "", 45 * time.Second},
		{"the date of a server whose clock is four seconds behind", header("Date: Tue, 24 Nov 2026 23:59:56 GMT",
			"Retry-After: Wed, 25 Nov 2026 00:00:41 GMT"), "", 44 * time.Second},
		{"GitHub's reset by a clock that is four seconds behind", header("Date: Tue, 24 Nov 2026 23:59:56 GMT", "X-Ratelimit-Remaining: 0",
			"X-Ratelimit-Reset: 1795564841"), "", 44 * time.Second},
		{"the date of a server whose clock is four seconds ahead", header("Date: Wed, 25 Nov 2026 00:00:04 GMT",
			"Retry-After: Wed, 25 Nov 2026 00:00:49 GMT"), "", 49 * time.Second},
		{"a Date a second ago", header("Date: Tue, 24 Nov 2026 23:59:59 GMT", "Retry-After: Wed, 25 Nov 2026 00:00:45 GMT"), "", 45 * time.Second},
		{"zero", header("Retry-After: 0"), "", 0},
		{"negative", header("Retry-After: -5"), "", 0},
		{"no number", header("Retry-After: soon"), "", 0},
		{"NaN", header("Retry-After: NaN"), "", 0},
		{"infinite", header("Retry-After: Inf"), "", 0},
		{"a zone by its offset", header("Retry-After: Wed, 25 Nov 2026 01:00:45 +0100"), "", 45 * time.Second},
		{"a zone by its name", header("Retry-After: Wed, 25 Nov 2026 00:00:45 UTC"), "", 45 * time.Second},
		{"a day of one digit", header("Date: Tue, 03 Nov 2026 00:00:00 GMT", "Retry-After: Tue, 3 Nov 2026 00:00:45 GMT"), "", 45 * time.Second},
		{"bucket4j's seconds", header("X-Rate-Limit-Retry-After-Seconds: 30"), "", 30 * time.Second},
		{"more parts than are read", header("Retry-After: " + strings.Repeat("1,", 40) + "99"), "", time.Second},
		{"more bytes than are read", header("Retry-After: 7," + strings.Repeat("x", 1<<20) + ",99"), "", 7 * time.Second},
		{"a message that asks for a day", nil, `{"error":{"message":"Please try again in 24h"}}`, 15 * time.Minute},
		{"a thousand years of seconds", header("Retry-After: 31556952000"), "", day},
		{"the year 3026", header("Retry-After: Wed, 25 Nov 3026 00:00:00 GMT"), "", day},
		{"more digits than fit", header("Retry-After: " + strings.Repeat("9", 400)), "", day},
		{"a moment in seconds since 1970", header("Retry-After: 1795564805"), "", 5 * time.Second},
		{"five lines", header("Retry-After: 1", "Retry-After: 9", "Retry-After: x", "Retry-After: 3", "Retry-After: -1"), "", 9 * time.Second},
		{"five values in a line", header("Retry-After: 1, 9, x, 3, -1"), "", 9 * time.Second},
		{"milliseconds before seconds", header("Retry-After: 60", "Retry-After-Ms: 350.5"), "", 350500 * time.Microsecond},
		{"milliseconds of zero", header("Retry-After: 60", "Retry-After-Ms: 0"), "", time.Minute},
		{"Cosmos DB's milliseconds", header("X-Ms-Retry-After-Ms: 1170", "Retry-After: 2"), "", 1170 * time.Millisecond},
		{"the second of two windows of Brave's", header("X-Ratelimit-Limit: 1, 15000", "X-Ratelimit-Policy: 1;w=1, 15000;w=2592000",
			"X-Ratelimit-Remaining: 0, 14523", "X-Ratelimit-Reset: 3, 1234567"), "", 3 * time.Second},
		{"the second of Brave's, where the month has no limit", header("X-Ratelimit-Limit: 1, 0", "X-Ratelimit-Policy: 1;w=1, 0;w=2592000",
			"X-Ratelimit-Remaining: 0, 0", "X-Ratelimit-Reset: 1, 1419704"), "", time.Second},
		{"the month of Brave's", header("X-Ratelimit-Limit: 1, 15000", "X-Ratelimit-Remaining: 1, 0", "X-Ratelimit-Reset: 1, 7200"), "", 2 * time.Hour},
		{"lists of several lengths", header("X-Ratelimit-Remaining: 0, 3", "X-Ratelimit-Reset: 3, 9, 6"), "", 9 * time.Second},
		{"a minute of OpenAI's", header("X-Ratelimit-Remaining-Tokens: 0", "X-Ratelimit-Reset-Tokens: 1m30s", "X-Ratelimit-Remaining-Requests: 9",
			"X-Ratelimit-Reset-Requests: 2h"), "", 90 * time.Second},
		{"a millisecond of OpenAI's", header("X-Ratelimit-Remaining-Requests: 0", "X-Ratelimit-Reset-Requests: 1ms"), "", time.Millisecond},
		{"seconds of Cerebras's", header("X-Ratelimit-Remaining-Tokens-Minute: 0", "X-Ratelimit-Reset-Tokens-Minute: 11.382883071899414"), "",
			11382884 * time.Microsecond},
		{"GitHub's reset", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1795564830"), "", 30 * time.Second},
		{"OpenRouter's reset in milliseconds", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1795564830500"), "", 30500 * time.Millisecond},
		{"a reset in microseconds", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1795564830500000"), "", 30500 * time.Millisecond},
		{"a reset that is past", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1795564700"), "", 0},
		{"a limit with room", header("X-Ratelimit-Remaining: 4312", "X-Ratelimit-Reset: 1795568400"), "", 0},
		{"Discord's reset", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset-After: 1.2"), "", 1200 * time.Millisecond},
		{"Anthropic's reset", header("Anthropic-Ratelimit-Requests-Remaining: 0", "Anthropic-Ratelimit-Requests-Reset: 2026-11-25T00:00:07Z"), "", 7 * time.Second},
		{"draft -11", header(`RateLimit: "burst";r=0;t=12, "day";r=640;t=40211`), "", 12 * time.Second},
		{"draft -08", header(`RateLimit: burst;r=0;t=12`), "", 12 * time.Second},
		{"draft -07", header("RateLimit: limit=100, remaining=0, reset=8"), "", 8 * time.Second},
		{"draft -06", header("RateLimit-Limit: 100, 100;w=60", "RateLimit-Remaining: 0", "RateLimit-Reset: 9"), "", 9 * time.Second},
		{"a broken field of the draft", header(`RateLimit: "burst;r=0;t=12`), "", 0},
		{"RetryInfo", nil, `{"error":{"code":429,"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"58s"}]}}`, 58 * time.Second},
		{"RetryInfo in an array", nil, `[{"error":{"code":429,"details":[{"retryDelay":"0.1s"}]}}]`, 100 * time.Millisecond},
		{"RetryInfo of zero", nil, `{"error":{"details":[{"retryDelay":"0s"}]}}`, 0},
		{"RetryInfo in a body that breaks off", nil, `{"error":{"details":[{"retryDelay":"3s"},{"mess`, 0},
		{"OpenAI's message", nil, `{"error":{"message":"Rate limit reached for gpt-4 on tokens per min. Please try again in 7m12s."}}`, 432 * time.Second},
		{"Azure's message", nil, `{"error":{"message":"Please retry after 9 seconds."}}`, 9 * time.Second},
		{"a message without a wait", nil, `{"error":{"message":"Try again in a moment"}}`, 0},
		{"a body of another kind", nil, `<html>try again in 5s</html>`, 0},
		{"deep nesting", nil, strings.Repeat(`{"a":[`, 5000) + `"retryDelay"`, 0},
		{"nothing", nil, "", 0},
	} {
		s := signal.Read(http.StatusTooManyRequests, c.h, []byte(c.body), now)
		if s.Wait != c.want || s.Reason == signal.None {
			t.Errorf("%s: waits %v, reason %v, want %v", c.name, s.Wait, s.Reason, c.want)
		}
		if s := signal.Read(http.StatusOK, c.h, nil, now); s.Reason != signal.None || s.Wait != 0 || s.Scope != signal.Model {
			t.Errorf("%s: with a status of 200 it says %+v", c.name, s)
		}
	}
}

// A response tells what is left, by name, and what it does not know it does not tell.
func TestRemaining(t *testing.T) {
	type rest = signal.Remaining
	for _, c := range []struct {
		name string
		h    http.Header
		want []rest
	}{
		{"OpenAI", header("X-Ratelimit-Limit-Tokens: 30000", "X-Ratelimit-Remaining-Tokens: 28800", "X-Ratelimit-Reset-Tokens: 2.4s"),
			[]rest{{Name: "tokens", Remaining: 28800, Limit: 30000, Reset: 2400 * time.Millisecond, Refills: true}}},
		{"Mistral", header("X-Ratelimit-Limit-Req-Minute: 60", "X-Ratelimit-Remaining-Req-Minute: 59"),
			[]rest{{Name: "req-minute", Remaining: 59, Limit: 60, Window: time.Minute}}},
		{"Kong", header("X-Ratelimit-Limit-Hour: 60", "X-Ratelimit-Remaining-Hour: 59"), []rest{{Name: "hour", Remaining: 59, Limit: 60, Window: time.Hour}}},
		{"Fireworks", header("X-Ratelimit-Limit-Tokens-Prompt: 60000", "X-Ratelimit-Remaining-Tokens-Prompt: 1"),
			[]rest{{Name: "tokens-prompt", Remaining: 1, Limit: 60000, Refills: true}}},
		{"Anthropic", header("Anthropic-Ratelimit-Output-Tokens-Limit: 16000", "Anthropic-Ratelimit-Output-Tokens-Remaining: 15000",
			"Anthropic-Ratelimit-Output-Tokens-Reset: 2026-11-25T00:00:05.25Z"),
			[]rest{{Name: "output-tokens", Remaining: 15000, Limit: 16000, Reset: 5250 * time.Millisecond, Refills: true}}},
		{"draft -11", header(`RateLimit: "api";r=7;t=1`, `RateLimit-Policy: "api";q=20;w=2`),
			[]rest{{Name: "api", Remaining: 7, Limit: 20, Reset: time.Second, Window: 2 * time.Second}}},
		{"draft -11 with a unit", header(`RateLimit: "t";r=7;t=1;pk=:dHJpYWwxMjEzMjM=:`, `RateLimit-Policy: "t";q=20;w=2;qu="tokens"`),
			[]rest{{Name: "t", Remaining: 7, Limit: 20, Reset: time.Second, Window: 2 * time.Second}}},
		{"draft -11 with another unit", header(`RateLimit: "T";r=7`, `RateLimit-Policy: "T";q=20;qu="content-bytes"`),
			[]rest{{Name: "t", Remaining: 7, Limit: 20}}},
		{"draft -06", header("RateLimit-Limit: 100, 100;w=60", "RateLimit-Remaining: 40", "RateLimit-Reset: 9"),
			[]rest{{Name: "requests", Remaining: 40, Limit: 100, Reset: 9 * time.Second, Window: time.Minute}}},
		{"draft -06 of express-rate-limit", header("RateLimit-Limit: 100", "RateLimit-Policy: 10;w=1, 100;w=60", "RateLimit-Remaining: 40"),
			[]rest{{Name: "requests", Remaining: 40, Limit: 100, Window: time.Minute}}},
		{"draft -07 of express-rate-limit", header("RateLimit: limit=100, remaining=40, reset=9", "RateLimit-Policy: 100;w=60"),
			[]rest{{Name: "requests", Remaining: 40, Limit: 100, Reset: 9 * time.Second, Window: time.Minute}}},
		{"WHOOP", header("X-Ratelimit-Limit: 100, 100;window=60, 10000;window=86400", "X-Ratelimit-Remaining: 98", "X-Ratelimit-Reset: 3"),
			[]rest{{Name: "requests", Remaining: 98, Limit: 100, Reset: 3 * time.Second, Window: time.Minute}}},
		{"Brave", header("X-Ratelimit-Limit: 1, 15000", "X-Ratelimit-Policy: 1;w=1, 15000;w=2592000", "X-Ratelimit-Remaining: 0, 14523",
			"X-Ratelimit-Reset: 3, 7200"), []rest{{Name: "requests", Limit: 1, Reset: 3 * time.Second, Window: time.Second},
			{Name: "requests", Remaining: 14523, Limit: 15000, Reset: 2 * time.Hour, Window: 30 * 24 * time.Hour}}},
		{"Brave, where the month has no limit", header("X-Ratelimit-Limit: 20, 0", "X-Ratelimit-Policy: 20;w=1, 0;w=2592000",
			"X-Ratelimit-Remaining: 19, 0", "X-Ratelimit-Reset: 1, 7200"),
			[]rest{{Name: "requests", Remaining: 19, Limit: 20, Reset: time.Second, Window: time.Second}}},
		{"Kong, several", header("X-Ratelimit-Limit-Minute: 5", "X-Ratelimit-Remaining-Minute: 3", "X-Ratelimit-Limit-Hour: 1000", "X-Ratelimit-Remaining-Hour: 900"),
			[]rest{{Name: "minute", Remaining: 3, Limit: 5, Window: time.Minute},
				{Name: "hour", Remaining: 900, Limit: 1000, Window: time.Hour}}},
		{"GitHub", header("X-Ratelimit-Limit: 5000", "X-Ratelimit-Remaining: 4312", "X-Ratelimit-Resource: core"),
			[]rest{{Name: "requests", Remaining: 4312, Limit: 5000}}},
		{"GitHub, code search", header("X-Ratelimit-Limit: 10", "X-Ratelimit-Remaining: 9", "X-Ratelimit-Resource: code_search", "X-Github-Request-Id: 1"),
			[]rest{{Name: "code_search", Remaining: 9, Limit: 10}}},
		{"Discord, of the routes of a bucket", header("X-Ratelimit-Limit: 5", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset-After: 1.2",
			"X-Ratelimit-Bucket: abcd1234"), []rest{{Name: "abcd1234", Limit: 5, Reset: 1200 * time.Millisecond}}},
		{"Azure DevOps, TSTUs", header("X-Ratelimit-Limit: 200", "X-Ratelimit-Remaining: 9", "X-Ratelimit-Resource: Service/Threshold"),
			[]rest{{Name: "service/threshold", Remaining: 9, Limit: 200}}},
		{"Anthropic, beside Priority Tier", header("Anthropic-Ratelimit-Input-Tokens-Limit: 80000", "Anthropic-Ratelimit-Input-Tokens-Remaining: 79000",
			"Anthropic-Priority-Input-Tokens-Limit: 10000", "Anthropic-Priority-Input-Tokens-Remaining: 12",
			"Anthropic-Fast-Input-Tokens-Limit: 0", "Anthropic-Fast-Input-Tokens-Remaining: 0"),
			[]rest{{Name: "input-tokens", Remaining: 79000, Limit: 80000, Refills: true},
				{Name: "priority-input-tokens", Remaining: 12, Limit: 10000, Refills: true}}},
		{"Azure knows nothing", header("X-Ratelimit-Limit-Tokens: -1", "X-Ratelimit-Remaining-Tokens: -1"), nil},
		{"a reset that is now", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1795564800"), nil},
		{"a reset that is past", header("X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 1795564700"), nil},
		{"a header without values", http.Header{"X-Ratelimit-Reset": nil, "X-Ratelimit-Remaining": {"3"}}, []rest{{Name: "requests", Remaining: 3}}},
		{"images", header("X-Ratelimit-Remaining-Images: 3"), []rest{{Name: "images", Remaining: 3, Refills: true}}},
		{"the cost of a query", header("X-Ratelimit-Tokens-Query-Cost: 50"), nil},
		{"five values", header("X-Ratelimit-Remaining: 9", "X-Ratelimit-Remaining: 4, x", "X-Ratelimit-Remaining: -1, 7"), []rest{{Name: "requests", Remaining: 4}}},
		{"too large", header("X-Ratelimit-Remaining: 1e300"), nil},
	} {
		got := signal.Read(http.StatusOK, c.h, nil, now).Remaining
		other := func(r rest) bool { return !slices.Contains(got, r) }
		if len(got) != len(c.want) || slices.ContainsFunc(c.want, other) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	many := make(http.Header)
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
