package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

const (
	apiKey = "sk-acme"
	prompt = "Tell me of the gate."
)

// result is what an SDK made of a stream: what the stream said, and how it failed.
type result struct {
	Text          string            `json:"text"`
	Model         string            `json:"model"` // that the answer names
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
		r.Model, r.Input, r.Output = all.Model, all.Usage.PromptTokens, all.Usage.CompletionTokens
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
			r.Model = event.Response.Model
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
		if err := json.Unmarshal(ended.Event.Data, &event); err != nil {
			t.Errorf("event %s: %v", ended.Event.Data, err)
		}
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
			if err := all.Accumulate(stream.Current()); err != nil {
				t.Error(err)
			}
		}
		for _, block := range all.Content {
			r.Text += block.Text
		}
		r.Model, r.Input, r.Output = string(all.Model), all.Usage.InputTokens, all.Usage.OutputTokens
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
