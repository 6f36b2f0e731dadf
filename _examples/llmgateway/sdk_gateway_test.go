package main_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// patience is the longest wait of a test. It is long so that tests pass on a loaded machine.
const patience = 90 * time.Second

// transcripts are the recorded streams of the formats.
var transcripts = map[llm.Format]string{
	llm.FormatOpenAIChat:        "internal/wire/testdata/chat-text.sse",
	llm.FormatOpenAIResponses:   "internal/wire/testdata/responses-text.sse",
	llm.FormatAnthropicMessages: "internal/wire/testdata/messages-text.sse",
	llm.FormatGemini:            "testdata/llmcases/gemini-stream/response.sse",
	llm.FormatOllama:            "testdata/llmcases/ollama-chat/response.ndjson",
}

// events returns the events of a format's transcript.
func events(t *testing.T, f llm.Format) []string {
	t.Helper()
	text := recorded(t, transcripts[f])
	if f == llm.FormatOllama {
		return strings.SplitAfter(text, "\n")
	}
	return strings.SplitAfter(text, "\n\n")
}

// recorded returns a file of the package llm.
func recorded(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "llm", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// contentType returns the Content-Type of a format's streams.
func contentType(f llm.Format) string {
	if f == llm.FormatOllama {
		return "application/x-ndjson"
	}
	return "text/event-stream"
}

// replay is an upstream that sends the transcript of a format. It sends the usage of a chat only to
// a request that asks for it, as OpenAI does.
func replay(t *testing.T, f llm.Format) http.HandlerFunc {
	all := events(t, f)
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		asked := strings.Contains(string(body), `"include_usage":true`)
		w.Header().Set("Content-Type", contentType(f))
		for _, event := range all {
			if f == llm.FormatOpenAIChat && strings.Contains(event, `"usage":{`) && !asked {
				continue
			}
			_, _ = io.WriteString(w, event) // the client may be gone
		}
	}
}

// named is replay with the model that the request asks for.
func named(t *testing.T, f llm.Format) http.HandlerFunc {
	names, all := regexp.MustCompile(`"model(Version)?":"[^"]*"`), strings.Join(events(t, f), "")
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", contentType(f))
		name := names.FindString(string(body))
		if f == llm.FormatGemini {
			_, name, _ = strings.Cut(r.URL.Path, "/models/")
			name, _, _ = strings.Cut(name, ":")
			name = `"modelVersion":"` + name + `"`
		}
		_, _ = io.WriteString(w, names.ReplaceAllLiteralString(all, name))
	}
}

// stall is an upstream that sends the transcript of a format up to its second piece of text, and
// then nothing until the gateway leaves.
func stall(t *testing.T, f llm.Format) http.HandlerFunc {
	all := events(t, f)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType(f))
		text := 0
		for _, event := range all {
			if text == 2 {
				break
			}
			if strings.Contains(event, `"delta":{"content":`) || strings.Contains(event, `"text_delta"`) ||
				strings.Contains(event, "event: response.output_text.delta") ||
				strings.Contains(event, `"parts":[{"text"`) || strings.Contains(event, `"thinking":"`) ||
				strings.Contains(event, `"content":"ok"`) {
				text++
			}
			_, _ = io.WriteString(w, event) // the client may be gone
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		select {
		case <-r.Context().Done():
		case <-time.After(patience):
			t.Error("the gateway did not end the stream")
		}
	}
}

// gateway is a Meter and a reverse proxy in front of an upstream. It counts the requests of its
// clients.
type gateway struct {
	t       *testing.T
	url     string
	gate    *core.Gate
	meter   *llm.Meter
	budget  *core.Policy
	reports chan llm.ResponseEvent

	mu       sync.Mutex
	statuses []int                             // of the requests; 0 before there is a response
	before   func(r *http.Request, number int) // see beforeEach
	last     *http.Request
}

func newGateway(
	t *testing.T, gate *core.Gate, budget core.PolicyConfig, upstream http.Handler, changes ...func(*llm.Config),
) *gateway {
	t.Helper()
	g := &gateway{t: t, gate: gate, reports: make(chan llm.ResponseEvent, 10)}
	budget.Hold, budget.OnFailure = time.Minute, core.FailClosed
	g.budget = core.Must(core.NewPolicy(budget))
	tenant := keyfunc.Must(keyfunc.Or(keyfunc.BearerToken(),
		keyfunc.Must(keyfunc.Header("X-Api-Key")), keyfunc.Must(keyfunc.Header("X-Goog-Api-Key"))))
	requests := core.Must(core.NewPolicy(core.PolicyConfig{Name: "requests", Algorithm: core.PerMinute(1000)}))
	cfg := llm.Config{
		Guard:       nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{Policy: requests, Key: tenant}}},
		Budgets:     []llm.Budget{{Policy: g.budget, Key: tenant}},
		MaxOutput:   1, // so that every stream outgrows its estimate
		ChargeEvery: 1,
		Overrun:     llm.OverrunEnd,
		Observe: func(_ context.Context, e core.Event) {
			g.reports <- *e.(*llm.ResponseEvent)
		},
	}
	for _, change := range changes {
		change(&cfg)
	}
	var err error
	if g.meter, err = llm.New(cfg); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(upstream)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	metered := g.meter.Handler(&httputil.ReverseProxy{
		Rewrite:  func(p *httputil.ProxyRequest) { p.SetURL(at) },
		ErrorLog: log.New(t.Output(), "", 0),
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		metered.ServeHTTP(&recorder{w, g, g.count(r)}, r)
	}))
	g.url = front.URL
	t.Cleanup(func() {
		front.Close()
		server.Close()
		if err := gate.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return g
}

// beforeEach calls f with each request and its number, from 1, before the Meter gets it.
func (g *gateway) beforeEach(f func(r *http.Request, number int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = f
}

// count returns the number of a request.
func (g *gateway) count(r *http.Request) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.statuses = append(g.statuses, 0)
	g.last = r
	if g.before != nil {
		g.before(r, len(g.statuses))
	}
	return len(g.statuses)
}

// recorder records the status of a response before it is sent.
type recorder struct {
	http.ResponseWriter
	gateway *gateway
	number  int
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	r.gateway.mu.Lock()
	r.gateway.statuses[r.number-1] = status
	r.gateway.mu.Unlock()
	r.ResponseWriter.WriteHeader(status)
}

// answered returns the statuses of the requests so far.
func (g *gateway) answered() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.statuses)
}

// exhaust spends all of the budget of a request's client.
func (g *gateway) exhaust(r *http.Request, limit int64) {
	if d, err := g.gate.Decide(r.Context(), g.charge(r, limit)); err != nil || !d.Allowed {
		g.t.Errorf("the budget was not full: %v, %v", d, err)
	}
}

// left returns what is left of the budget of the last request's client.
func (g *gateway) left() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, err := g.gate.Peek(context.Background(), g.charge(g.last, 0))
	if err != nil {
		g.t.Fatal(err)
	}
	return d.At(0).Remaining
}

// reserve holds units of the budget of a request's client, as a running request does.
func (g *gateway) reserve(r *http.Request, units int64) *core.Reservation {
	running, d, err := g.gate.Charge(r.Context(), g.charge(r, units))
	if err != nil || !d.Allowed {
		g.t.Errorf("the budget was not full: %v, %v", d, err)
	}
	return running
}

// charge returns a charge of the budget of a request's client.
func (g *gateway) charge(r *http.Request, cost int64) core.Charge {
	format, _ := llm.FormatOf(r)
	all, err := g.meter.Guard(format).Charges(r)
	if err != nil {
		g.t.Error(err)
	}
	for _, c := range all {
		if c.Policy == g.budget {
			c.Cost = cost
			return c
		}
	}
	g.t.Errorf("the budget does not apply to %s", r.URL.Path)
	return core.Charge{}
}
