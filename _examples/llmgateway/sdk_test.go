package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/outbound"
)

// answers are the transcripts as the SDKs understand them, and what the Meter settles.
var answers = map[llm.Format]struct {
	text          string
	input, output int64
	used          llm.Usage
}{
	llm.FormatOpenAIChat:        {`Hello — "usage":{"prompt_tokens":1}😀`, 2006, 300, llm.Usage{Input: 86, CacheRead: 1920, Output: 300}},
	llm.FormatOpenAIResponses:   {"Hi there!", 37, 11, llm.Usage{Input: 5, CacheRead: 32, Output: 11}},
	llm.FormatAnthropicMessages: {"Hello!", 25, 15, llm.Usage{Input: 25, CacheRead: 1800, CacheWrite: 2051, Output: 15}},
	llm.FormatGemini:            {"One two three", 9, 7, llm.Usage{Input: 9, Output: 207, Reasoning: 200}},
	llm.FormatOllama:            {"ok", 26, 8, llm.Usage{Input: 26, Output: 8}},
}

// noon is in the middle of a month, so that the month ends in more than a minute.
var noon = time.Date(2027, 6, 15, 12, 0, 0, 0, time.UTC)

func monthly(limit int64) core.PolicyConfig {
	return core.PolicyConfig{
		Name: "month", Unit: core.UnitTokens,
		Algorithm: core.Calendar{Limit: limit, Every: core.PeriodMonth, In: time.UTC},
	}
}

func inMemory(clock func() time.Time) *core.Gate {
	return core.Must(core.NewMemory(core.Config{Clock: clock}))
}

// refusal returns the error of a refusal or of a stream that was ended.
func refusal(f llm.Format, class string, status int) failure {
	switch {
	case f == llm.FormatAnthropicMessages && status == 529:
		return failure{Class: class, Status: status, Type: "overloaded_error"}
	case f == llm.FormatAnthropicMessages:
		return failure{Class: class, Status: status, Type: "rate_limit_error"}
	case f == llm.FormatGemini && status == http.StatusServiceUnavailable:
		return failure{Class: class, Status: status, Type: "UNAVAILABLE"}
	case f == llm.FormatGemini:
		return failure{Class: class, Status: status, Type: "RESOURCE_EXHAUSTED"}
	case f == llm.FormatOllama:
		return failure{Class: class, Status: status}
	case status == http.StatusServiceUnavailable:
		return failure{Class: class, Status: status, Type: "server_error"}
	}
	return failure{Class: class, Status: status, Type: "insufficient_quota", Code: "insufficient_quota"}
}

func (g *gateway) expect(statuses ...int) {
	g.t.Helper()
	gatetest.Equal(g.t, fmt.Sprint(g.answered()), fmt.Sprint(statuses), "the gateway answered")
}

func (r *result) expect(t *testing.T, want failure) {
	t.Helper()
	if r.Error == nil {
		t.Fatalf("no error: %+v", r)
	}
	got := *r.Error
	if got.Message == "" {
		t.Error("the error has no message")
	}
	if got.Message = ""; got != want {
		t.Errorf("the error is %+v, want %+v", *r.Error, want)
	}
}

// complete checks a whole answer.
func (r *result) complete(t *testing.T, f llm.Format, usage bool) {
	t.Helper()
	want := answers[f]
	if !usage {
		want.input, want.output = 0, 0
	}
	if r.Error != nil || r.Text != want.text || r.Input != want.input || r.Output != want.output {
		t.Errorf("%q, %d and %d tokens, %+v; want %q, %d and %d",
			r.Text, r.Input, r.Output, r.Error, want.text, want.input, want.output)
	}
}

// limits checks the headers of the limits on tokens and requests.
func (r *result) limits(t *testing.T, f llm.Format, remaining int64) {
	t.Helper()
	for _, unit := range []string{"tokens", "requests"} {
		name := func(what string) string {
			if f == llm.FormatAnthropicMessages {
				return "anthropic-ratelimit-" + unit + "-" + what
			}
			return "x-ratelimit-" + what + "-" + unit
		}
		for _, what := range []string{"limit", "remaining"} {
			n, err := strconv.ParseInt(r.header(name(what)), 10, 64)
			if err != nil || unit == "tokens" && what == "remaining" && n != remaining {
				t.Errorf("%s: %q, want %d, %v", name(what), r.header(name(what)), remaining, err)
			}
		}
		var err error
		if reset := r.header(name("reset")); f == llm.FormatAnthropicMessages {
			_, err = time.Parse(time.RFC3339, reset)
		} else {
			_, err = time.ParseDuration(reset)
		}
		gatetest.Is(t, err, nil, "%s", name("reset"))
	}
}

func TestSDKStreamsToTheEnd(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sdk) {
		for _, asked := range []bool{true, false} {
			if !asked && s.format != llm.FormatOpenAIChat {
				continue // these always send it
			}
			g := newGateway(t, inMemory(nil), monthly(1_000_000), replay(t, s.format))
			r := s.stream(t, g.url, asked)
			r.complete(t, s.format, asked)
			g.expect(http.StatusOK)
			report := <-g.reports
			if report.Outcome != llm.OutcomeReported || report.Usage != answers[s.format].used {
				t.Errorf("settled as %+v", report)
			}
			r.limits(t, s.format, 1_000_000-report.Estimate.Total())
			gatetest.Equal(t, g.left(), 1_000_000-report.Usage.Total(), "tokens are left")
		}
	})
}

func TestSDKDoesNotRetryAnExhaustedBudget(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sdk) {
		g := newGateway(t, inMemory(core.NewManualClock(noon).Now), monthly(1000), replay(t, s.format))
		g.beforeEach(func(r *http.Request, number int) {
			if number == 1 {
				g.exhaust(r, 1000)
			}
		})
		r := s.stream(t, g.url, false)
		r.expect(t, refusal(s.format, s.limited, http.StatusTooManyRequests))
		r.limits(t, s.format, 0)
		g.expect(http.StatusTooManyRequests)
		if wait := r.header("Retry-After"); r.header("X-Should-Retry") != "false" || wait != "" {
			t.Errorf("x-should-retry: %s, Retry-After: %s", r.header("X-Should-Retry"), wait)
		}
		if strings.Contains(r.Error.Message, "retryDelay") {
			t.Errorf("the wait of half a month is in %s", r.Error.Message)
		}
	})
}

// The clock of the gate moves only by the time that the SDK really waits.
func TestSDKRetriesOnceAfterTheWait(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{2 * time.Second, 100 * time.Millisecond} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s sdk) {
				clock := core.NewManualClock(noon)
				g := newGateway(t, inMemory(clock.Now), core.PolicyConfig{
					Name: "rate", Unit: core.UnitTokens,
					Algorithm: core.TokenBucket{Rate: 4, Per: wait, Burst: 4}, // below any estimate
				}, replay(t, s.format), func(cfg *llm.Config) {
					cfg.Overrun = llm.OverrunDebt // every stream outgrows the budget
				})
				var last time.Time
				g.beforeEach(func(r *http.Request, number int) {
					now := time.Now()
					if number == 1 {
						g.exhaust(r, 4)
					} else {
						clock.Advance(now.Sub(last))
					}
					last = now
				})
				r := s.stream(t, g.url, true)
				if s.attempts == 1 {
					r.expect(t, refusal(s.format, s.limited, http.StatusTooManyRequests))
					time.Sleep(wait) // the clock of the gate follows
					r = s.stream(t, g.url, true)
				}
				r.complete(t, s.format, true)
				g.expect(http.StatusTooManyRequests, http.StatusOK)
			})
		})
	}
}

func TestSDKFailsWithTheErrorThatEndsAStream(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sdk) {
		budget := monthly(1) // the estimate of the output
		budget.Unit = core.UnitOutputTokens
		g := newGateway(t, inMemory(core.NewManualClock(noon).Now), budget, stall(t, s.format))
		r := s.stream(t, g.url, true)
		r.expect(t, refusal(s.format, s.ended, s.endedStatus))
		if r.Text == "" {
			t.Error("the text before the end is lost")
		}
		g.expect(http.StatusOK)
		if report := <-g.reports; report.Outcome != llm.OutcomeCut || !report.Indebted || report.Usage.Output < 2 {
			t.Errorf("settled as %+v", report)
		}
	})
}

func TestSDKWithoutRedis(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s sdk) {
		server := redistest.Start(t)
		gate := core.Must(core.NewRedis(server.Client(t), core.Config{Timeout: 30 * time.Second}))
		g := newGateway(t, gate, monthly(1_000_000), replay(t, s.format))
		r := s.stream(t, g.url, true)
		r.complete(t, s.format, true)
		<-g.reports // settled
		server.Kill()
		r = s.stream(t, g.url, true)
		status := http.StatusServiceUnavailable
		if s.format == llm.FormatAnthropicMessages {
			status = 529
		}
		r.expect(t, refusal(s.format, s.overloaded, status))
		g.expect(append([]int{http.StatusOK}, slices.Repeat([]int{status}, s.attempts)...)...)
		gatetest.Equal(t, r.header("Retry-After"), "1", "Retry-After")
	})
}

// @google/genai retries if it is told to. It does not read how long it should wait.
func TestGoogleRetriesWhereItIsTold(t *testing.T) {
	t.Parallel()
	only(t, "google-genai", func(t *testing.T, s sdk) {
		g := newGateway(t, inMemory(core.NewManualClock(noon).Now), monthly(1000), replay(t, s.format))
		var running *core.Reservation
		g.beforeEach(func(r *http.Request, number int) {
			if number == 1 {
				running = g.reserve(r, 1000)
			} else if err := running.Cancel(r.Context()); err != nil {
				t.Error(err)
			}
		})
		r := call("gemini", "retry")(t, g.url)
		r.complete(t, s.format, true)
		g.expect(http.StatusTooManyRequests, http.StatusOK)
	})
}

func TestSDKReadsAWholeAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format, answer string
		input, output  int64
	}{
		"google-genai": {"gemini", recorded(t, "testdata/llmcases/gemini-json/response.json"), 12928, 380},
		"ollama-js": {"ollama", `{"model":"model-1","created_at":"2026-01-01T00:00:01Z",` +
			`"message":{"role":"assistant","content":"ok"},"done":true,"prompt_eval_count":26,"eval_count":8}`, 26, 8},
	} {
		only(t, name, func(t *testing.T, _ sdk) {
			upstream := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, c.answer) // the client may be gone
			}
			g := newGateway(t, inMemory(nil), monthly(1_000_000), http.HandlerFunc(upstream))
			r := call(c.format, "whole")(t, g.url)
			if r.Error != nil || r.Text != "ok" || r.Input != c.input || r.Output != c.output {
				t.Errorf("%+v, %+v", r, r.Error)
			}
			gatetest.Equal(t, (<-g.reports).Outcome, llm.OutcomeReported, "settled as")
		})
	}
}

// tries are how often each client of retry.mjs asks at most, by its own defaults. The SDKs of model APIs
// heed X-Should-Retry.
var tries = map[string]int{"got": 3, "ky": 3, "axios-retry": 4, "openai": 1, "anthropic": 1}

// spentMonth returns a Guard whose month is spent, with that much of it left.
func spentMonth(t *testing.T, dialect nethttp.Dialect, left time.Duration) *nethttp.Guard {
	t.Helper()
	gate := inMemory(core.NewManualClock(time.Date(2027, 2, 1, 0, 0, 0, 0, time.UTC).Add(-left)).Now)
	t.Cleanup(func() {
		gatetest.Worked(t, gate.Close(context.Background()))
	})
	guard := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Dialect: dialect,
		Rules: []nethttp.Rule{{Policy: core.Must(core.NewPolicy(monthly(1))), Key: keyfunc.Must(keyfunc.Static("k"))}},
	}))
	guard.Handler(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	return guard
}

// A client does not sleep until a spent month ends, and does not ask again and again: the SDKs of model
// APIs ask once, and others give up as they do without a Retry-After.
func TestClientsGiveUpOnASpentMonth(t *testing.T) {
	t.Parallel()
	needNode(t)
	var mu sync.Mutex
	asked := make(map[string]int) // by /dialect/days/client
	mux := http.NewServeMux()
	var urls []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[strings.Join(strings.Split(r.URL.Path, "/")[:4], "/")]++
		mu.Unlock()
		mux.ServeHTTP(w, r)
	}))
	defer server.Close()
	for name, dialect := range map[string]nethttp.Dialect{
		"draft11": nethttp.Draft11{}, "legacy": nethttp.Legacy{}, "epoch": nethttp.Legacy{Epoch: true},
		"none": nethttp.None{}, "openai": llm.OpenAI{}, "anthropic": llm.Anthropic{},
	} {
		for _, days := range []float64{2.9, 29} {
			path := fmt.Sprintf("/%s/%v", name, days)
			guard := spentMonth(t, dialect, time.Duration(days*24*float64(time.Hour)))
			mux.Handle(path+"/", guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Errorf("%s: a request was admitted", path)
			})))
			urls = append(urls, server.URL+path)
		}
	}
	ends := runRetries(t, urls)
	mu.Lock()
	defer mu.Unlock()
	for _, e := range ends {
		path := strings.TrimPrefix(e.URL, server.URL) + "/" + e.Client
		t.Logf("%s: %d tries in %.1f s", path, asked[path], e.Seconds)
		if n := asked[path]; e.Status != "429" || n < 1 || n > tries[e.Client] {
			t.Errorf("%s: %d tries, want at most %d; in the end %s", path, n, tries[e.Client], e.Status)
		}
	}
}

// retried is how a client of retry.mjs has ended.
type retried struct {
	Client, URL, Status string
	Seconds             float64
}

// runRetries asks each URL with all clients of retry.mjs at once.
func runRetries(t *testing.T, urls []string) (all []retried) {
	t.Helper()
	const awake = 25 * time.Second // the clients' own pauses are 3 s together
	args := []string{filepath.Join("sdk", "retry.mjs"), strconv.Itoa(int(awake.Seconds()))}
	cmd := exec.CommandContext(t.Context(), "node", append(args, urls...)...)
	cmd.Env = nodeEnv(t)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil || len(all) != len(urls)*len(tries) {
		t.Fatalf("node: %v, %s", err, out)
	}
	return all
}

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
	meter := gatetest.Must(llm.NewOutbound(llm.OutboundConfig{}))(t)
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
	tr := gatetest.Must(outbound.New(cfg))(t)
	return &http.Client{Transport: tr}, u.URL, sent
}

// A refusal that the SDK sees makes it wait as the provider says, and its retry finds the cooldown
// over: it waits once. With Config.Retry the SDK sees no refusal.
func TestOutboundSDKsWaitOnce(t *testing.T) {
	t.Parallel()
	for _, s := range outboundSDKs {
		for _, retries := range []int{0, 3} {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				p := provider.New(provider.Config{Form: s.form})
				client, url, sent := outboundClient(t, p, func(cfg *outbound.Config) { cfg.Retry.Max = retries })
				gatetest.NoError(t, s.stream(client)(t, url, true).err)
				gatetest.Need(t, len(sent), 1, "the SDK did not use the client")
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
	t.Parallel()
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
			gatetest.Equal(t, p.Counts().Accepted, 0, "requests accepted")
		})
	}
}

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
	text := gatetest.Must(os.ReadFile(filepath.Join("..", "..", "llm", filepath.FromSlash(path))))(t)
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
		gatetest.Worked(t, err)
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
		gatetest.Worked(t, http.NewResponseController(w).Flush())
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
	g.meter = gatetest.Must(llm.New(cfg))(t)
	server := httptest.NewServer(upstream)
	at := gatetest.Must(url.Parse(server.URL))(t)
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
		gatetest.Worked(t, gate.Close(context.Background()))
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
	d := gatetest.Must(g.gate.Peek(context.Background(), g.charge(g.last, 0)))(g.t)
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
	gatetest.Worked(g.t, err)
	for _, c := range all {
		if c.Policy == g.budget {
			c.Cost = cost
			return c
		}
	}
	g.t.Errorf("the budget does not apply to %s", r.URL.Path)
	return core.Charge{}
}

const (
	apiKey = "sk-acme"
	prompt = "Tell me of the gate."
)

// result is what an SDK made of a stream: what the stream said, and how it failed.
type result struct {
	Text          string            `json:"text"`
	Input, Output int64             // tokens; 0 if the SDK was sent no usage
	Headers       map[string]string `json:"headers"`
	Error         *failure          `json:"error"`
	err           error             // of an SDK of Go
}

// failure is the error of an SDK. A field that the SDK's error does not have is empty.
type failure struct {
	Class   string `json:"class"`
	Status  int    `json:"status"`
	Type    string `json:"type"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r *result) header(name string) string {
	for n, value := range r.Headers {
		if strings.EqualFold(n, name) {
			return value
		}
	}
	return ""
}

func (r *result) keep(response *http.Response) {
	if response == nil {
		return
	}
	r.Headers = make(map[string]string)
	for name := range response.Header {
		r.Headers[name] = response.Header.Get(name)
	}
}

// sdk is an official SDK with one of the formats that it speaks. Its settings are the defaults.
type sdk struct {
	name     string
	format   llm.Format
	attempts int // at most, of one call
	// stream streams one answer through the gateway at url. usage says whether a chat asks for its
	// usage.
	stream func(t *testing.T, url string, usage bool) result
	// The errors of a refusal with 429, of a stream that ends with an error, and of a refusal with
	// 503 or 529. Their status, type and code follow from the format.
	limited, ended, overloaded string
	endedStatus                int
}

var sdks = []sdk{
	{"openai-go/chat", llm.FormatOpenAIChat, 3, openAIChat(nil), "Error", "StreamError", "Error", 0},
	{"openai-go/responses", llm.FormatOpenAIResponses, 3, openAIResponses, "Error", "StreamError", "Error", 0},
	{"anthropic-sdk-go", llm.FormatAnthropicMessages, 3, anthropicMessages(nil), "Error", "Error", "Error", 200},
	{"openai-node/chat", llm.FormatOpenAIChat, 3, node("openai-chat"), "RateLimitError", "APIError", "InternalServerError", 0},
	{"openai-node/responses", llm.FormatOpenAIResponses, 3, node("openai-responses"), "RateLimitError", "APIError", "InternalServerError", 0},
	{"anthropic-sdk-typescript", llm.FormatAnthropicMessages, 3, node("anthropic-messages"), "RateLimitError", "APIError", "OverloadedError", 0},
	{"google-genai", llm.FormatGemini, 1, node("gemini"), "ApiError", "ApiError", "ApiError", 429},
	{"ollama-js", llm.FormatOllama, 1, node("ollama"), "ResponseError", "Error", "ResponseError", 0},
}

func openAIClient(url string, h *http.Client) openai.Client {
	options := []openaioption.RequestOption{
		openaioption.WithBaseURL(url + "/v1"), openaioption.WithAPIKey(apiKey),
		openaioption.WithUnsafeAllowHTTP(), // otherwise it sends no key without TLS
	}
	if h != nil {
		options = append(options, openaioption.WithHTTPClient(h))
	}
	return openai.NewClient(options...)
}

// openAIChat streams through an HTTP client, or the SDK's own if it is nil.
func openAIChat(h *http.Client) func(t *testing.T, url string, usage bool) result {
	return func(t *testing.T, url string, usage bool) (r result) {
		client := openAIClient(url, h)
		params := openai.ChatCompletionNewParams{
			Model: "model-1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		}
		if usage {
			params.StreamOptions.IncludeUsage = openai.Bool(true)
		}
		var response *http.Response
		stream := client.Chat.Completions.NewStreaming(t.Context(), params, openaioption.WithResponseInto(&response))
		defer stream.Close()
		all := openai.ChatCompletionAccumulator{}
		for stream.Next() {
			if !all.AddChunk(stream.Current()) {
				t.Error("the chunk does not follow the earlier ones")
			}
		}
		if len(all.Choices) > 0 {
			r.Text = all.Choices[0].Message.Content
		}
		r.Input, r.Output = all.Usage.PromptTokens, all.Usage.CompletionTokens
		r.keep(response)
		r.err = stream.Err()
		r.Error = openAIFailure(t, r.err)
		return r
	}
}

func openAIResponses(t *testing.T, url string, _ bool) (r result) {
	client := openAIClient(url, nil)
	var response *http.Response
	stream := client.Responses.NewStreaming(t.Context(), responses.ResponseNewParams{
		Model: "model-1", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(prompt)},
	}, openaioption.WithResponseInto(&response))
	defer stream.Close()
	for stream.Next() {
		switch event := stream.Current().AsAny().(type) {
		case responses.ResponseTextDeltaEvent:
			r.Text += event.Delta
		case responses.ResponseCompletedEvent:
			r.Input, r.Output = event.Response.Usage.InputTokens, event.Response.Usage.OutputTokens
		}
	}
	r.keep(response)
	r.Error = openAIFailure(t, stream.Err())
	return r
}

func openAIFailure(t *testing.T, err error) *failure {
	var refused *openai.Error
	var ended *ssestream.StreamError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return &failure{"Error", refused.StatusCode, refused.Type, refused.Code, refused.Message}
	case errors.As(err, &ended):
		var event struct{ Error failure }
		gatetest.Worked(t, json.Unmarshal(ended.Event.Data, &event))
		event.Error.Class = "StreamError"
		return &event.Error
	}
	return &failure{Class: "other", Message: err.Error()}
}

// anthropicMessages streams through an HTTP client, or the SDK's own if it is nil.
func anthropicMessages(h *http.Client) func(t *testing.T, url string, _ bool) result {
	return func(t *testing.T, url string, _ bool) (r result) {
		options := []anthropicoption.RequestOption{anthropicoption.WithBaseURL(url), anthropicoption.WithAPIKey(apiKey)}
		if h != nil {
			options = append(options, anthropicoption.WithHTTPClient(h))
		}
		client := anthropic.NewClient(options...)
		var response *http.Response
		stream := client.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{
			Model: "model-1", MaxTokens: 100,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))},
		}, anthropicoption.WithResponseInto(&response))
		defer stream.Close()
		all := anthropic.Message{}
		for stream.Next() {
			gatetest.Worked(t, all.Accumulate(stream.Current()))
		}
		for _, block := range all.Content {
			r.Text += block.Text
		}
		r.Input, r.Output = all.Usage.InputTokens, all.Usage.OutputTokens
		r.keep(response)
		if r.err = stream.Err(); r.err != nil {
			r.Error = &failure{Class: "other", Message: r.err.Error()}
			var failed *anthropic.Error
			if errors.As(r.err, &failed) {
				r.Error = &failure{"Error", failed.StatusCode, string(failed.Type()), "", failed.RawJSON()}
			}
		}
		return r
	}
}

// node returns a client that runs an SDK of Node.js in a process of its own.
func node(format string) func(*testing.T, string, bool) result {
	return func(t *testing.T, url string, usage bool) result {
		if usage {
			return call(format, "usage")(t, url)
		}
		return call(format, "")(t, url)
	}
}

// call returns a client like those of node with an option of call.mjs.
func call(format, option string) func(*testing.T, string) result {
	return func(t *testing.T, url string) (r result) {
		args := []string{filepath.Join("sdk", "call.mjs"), format, url, apiKey, option}
		cmd := exec.CommandContext(t.Context(), "node", args...)
		cmd.Env = nodeEnv(t)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err != nil {
			t.Fatalf("node: %v, %s", err, out)
		}
		return r
	}
}

// nodeEnv is the environment of a program of Node.js: it has neither keys nor proxies.
func nodeEnv(t *testing.T) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
}

// needNode skips a test where Node.js or the packages of sdk are not installed. It fails the test if
// HEADGATE_TEST_REDIS is require.
func needNode(t *testing.T) {
	t.Helper()
	_, missing := exec.LookPath("node")
	if missing == nil {
		_, missing = os.Stat(filepath.Join("sdk", "node_modules"))
	}
	switch {
	case missing == nil:
	case os.Getenv("HEADGATE_TEST_REDIS") == "require":
		t.Fatalf("%v: install Node.js and run npm ci in sdk", missing)
	default:
		t.Skipf("%v: install Node.js and run npm ci in sdk", missing)
	}
}

// each runs f in parallel for every SDK. It skips those of Node.js where they are not installed.
func each(t *testing.T, f func(t *testing.T, s sdk)) { only(t, "", f) }

// only is each for the SDK with a name, or for all if it is empty.
func only(t *testing.T, name string, f func(t *testing.T, s sdk)) {
	for _, s := range sdks {
		if name != "" && s.name != name {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(s.name, "-go") {
				needNode(t)
			}
			f(t, s)
		})
	}
}
