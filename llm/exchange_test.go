package llm_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

// exchange is a request, the answer to it, and what a Meter makes of both.
type exchange struct {
	name, path, ask string // a streamed chat, with an estimate of 3 and 50 tokens, if they are empty
	contentType     string // of the request
	money           bool   // what the budget counts, instead of tokens
	change          func(*llm.Config)
	answer          http.HandlerFunc // of the server behind a reverse proxy
	handle          http.HandlerFunc // behind the Meter, without a proxy
	held            int64            // that the budget counts before there is an answer, if it matters
	refused         bool
	status          int    // 0 if it does not matter
	shown           string // the end of what the client is sent
	outcome         llm.Outcome
	usage           llm.Usage
	cost            int64 // or what a budget of another unit counts
	unknown         []string
}

func (c *exchange) run(t *testing.T) {
	unit := core.UnitTokens
	if c.money {
		unit = core.UnitMicroDollars
	}
	r := newRig(t, unit, 1_000_000, c.change)
	held := int64(-1)
	hold := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, q *http.Request) {
			held = r.used()
			h(w, q)
		}
	}
	if c.handle != nil {
		r.handle(hold(c.handle))
	} else {
		r.answer = hold(c.answer)
	}
	path, ask, contentType := c.path, c.ask, c.contentType
	if path == "" {
		path = chatPath
	}
	if ask == "" {
		ask = streamed
	}
	if contentType == "" {
		contentType = "application/json"
	}
	client := &http.Client{Transport: plainClient.Transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	response, err := client.Do(r.request(path, ask, "Content-Type", contentType))
	if err == nil {
		body, _ := io.ReadAll(response.Body) // which may break off
		response.Body.Close()
		if c.status != 0 && response.StatusCode != c.status || !strings.HasSuffix(string(body), c.shown) {
			t.Errorf("the client was sent %d %s", response.StatusCode, body)
		}
	} else if c.status != 0 {
		t.Error(err)
	}
	if c.refused {
		if response.StatusCode/100 != 4 || held >= 0 {
			t.Errorf("status %d, %d were held", response.StatusCode, held)
		}
		return
	}
	want := c.usage.Total()
	if c.money || c.cost != 0 {
		want = c.cost
	}
	report := r.want(c.outcome, c.usage, want)
	if c.held != 0 && held != c.held {
		t.Errorf("%d were held, want %d", held, c.held)
	}
	if c.money && report.Cost != c.cost || !slices.Equal(report.Unknown, c.unknown) {
		t.Errorf("it costs %d, unknown %q, want %d, %q", report.Cost, report.Unknown, c.cost, c.unknown)
	}
}

func failure(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, `{"error":{"message":"no"},"usage":{"prompt_tokens":7,"completion_tokens":11}}`)
	}
}

// write is a handler that flushes what it writes, and then calls do.
func write(text string, do http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, text)
		if _ = http.NewResponseController(w).Flush(); do != nil {
			do(w, r)
		}
	}
}

// Whatever a server does, and a handler without one, the request pays what it has used.
func TestUpstreamIsSettled(t *testing.T) {
	const done = "data: [DONE]\n\n"
	seven := llm.Usage{Input: 7, Output: 2}
	document := `{"usage":{"prompt_tokens":7,"completion_tokens":2}}`
	for _, c := range []exchange{
		{name: "400", answer: failure(400), status: 400, outcome: llm.OutcomeFailed},
		{name: "429", answer: failure(429), status: 429, outcome: llm.OutcomeFailed},
		{name: "500", answer: failure(500), status: 500, outcome: llm.OutcomeFailed},
		{name: "529", answer: failure(529), status: 529, outcome: llm.OutcomeFailed},
		{name: "redirect", answer: failure(302), status: 302, outcome: llm.OutcomeFailed},
		{name: "breaks off before the first byte", answer: abort, status: 502, outcome: llm.OutcomeFailed},
		{name: "breaks off after the head", answer: events(0, abort), outcome: llm.OutcomeCut, usage: llm.Usage{Input: 3}},
		{name: "breaks off between events", answer: events(4, abort), status: 200, outcome: llm.OutcomeCut,
			usage: llm.Usage{Input: 3, Output: 4}},
		{name: "breaks off in an event", answer: events(4, write(`data: {"choices":[{"delta":{"content":"wo`, abort)), status: 200,
			outcome: llm.OutcomeCut, usage: llm.Usage{Input: 3, Output: 5}},
		{name: "ends without a last event", answer: events(4, nil), status: 200, outcome: llm.OutcomeCut,
			usage: llm.Usage{Input: 3, Output: 4}},
		{name: "ends in an event", answer: events(4, write(`data: {"choices":[{"delta":{"content":"word"}}]}`, nil)), status: 200,
			outcome: llm.OutcomeCut, usage: llm.Usage{Input: 3, Output: 5}},
		{name: "error event", answer: events(4, write("data: {\"error\":{\"message\":\"overloaded\"}}\n\n"+done, nil)), status: 200,
			outcome: llm.OutcomeCut, usage: llm.Usage{Input: 3, Output: 4}},
		{name: "error event after a search", status: 200, outcome: llm.OutcomeCut, usage: llm.Usage{Input: 3},
			answer: write(sseOf(`{"choices":[],"usage":{"server_tool_use":{"web_search_requests":1}}}`, `{"error":{"message":"m"}}`), nil)},
		{name: "no usage", answer: events(4, write(done, nil)), status: 200, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 3, Output: 50}},
		{name: "no usage and more than the estimate", answer: events(60, write(done, nil)), status: 200, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 3, Output: 60}},
		{name: "invalid JSON in a chunk", answer: events(4, write("data: {oops\n\n", chat(7, 2))), status: 200, usage: seven},
		{name: "usage in a broken chunk", status: 200, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50},
			answer: events(4, write(`data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}`+"\n\n"+done, nil))},
		{name: "usage of nothing", answer: events(4, chat(0, 0)), status: 200, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 3, Output: 50}},
		{name: "input of nothing", answer: chat(0, 11), status: 200, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 11}},
		{name: "output of nothing", answer: events(4, chat(7, 0)), status: 200, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 7, Output: 50}},
		{name: "usage of nothing in a document", status: 200, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50},
			answer: sent("", `{"choices":[{"message":{"content":"word"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`)},
		{name: "sound without an input", status: 200, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 3, Output: 200, AudioOut: 800, Reasoning: 90},
			answer: sent("", `{"choices":[{"message":{"content":"word"}}],"usage":{"prompt_tokens":0,`+
				`"completion_tokens":1000,"completion_tokens_details":{"audio_tokens":800,"reasoning_tokens":90}}}`)},
		{name: "usage of nothing without an answer", answer: chat(0, 0), status: 200},
		{name: "no content", answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, status: 204,
			outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50}},
		{name: "empty", answer: func(http.ResponseWriter, *http.Request) {}, status: 200, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 3, Output: 50}},
		{name: "a page", answer: sent("", "<html>"), status: 200, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50}},
		{name: "early hints", status: 200, usage: seven, answer: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(103)
			chat(7, 2)(w, r)
		}},
		{name: "no server", handle: proxyTo(t, "http://127.0.0.1:1").ServeHTTP, status: 502, outcome: llm.OutcomeFailed},
		{name: "a handler writes nothing", handle: func(http.ResponseWriter, *http.Request) {}, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Input: 3, Output: 50}},
		{name: "a handler panics", handle: func(http.ResponseWriter, *http.Request) { panic("own") }, outcome: llm.OutcomeFailed},
		{name: "a handler panics in a stream", handle: events(2, func(http.ResponseWriter, *http.Request) { panic("own") }),
			outcome: llm.OutcomeCut, usage: llm.Usage{Input: 3, Output: 2}},
		{name: "flushes first", shown: done, usage: seven, handle: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			w.(http.Flusher).Flush()
			chat(7, 2)(w, r)
		}},
		{name: "copies", shown: "}", usage: seven, handle: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.Copy(w, strings.NewReader(document))
		}},
		{name: "writes a string", shown: "}", usage: seven, handle: sent("", document)},
		{name: "sets a deadline", shown: done, usage: seven, handle: func(w http.ResponseWriter, r *http.Request) {
			gatetest.Worked(t, http.NewResponseController(w).SetWriteDeadline(time.Time{}))
			chat(7, 2)(w, r)
		}},
		{name: "hijacks", outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50}, handle: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		}},
		{name: "switches protocols", outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50},
			handle: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }},
		{name: "sends two statuses", shown: "failed", outcome: llm.OutcomeFailed, handle: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			w.WriteHeader(200)
			fmt.Fprint(w, "failed")
		}},
	} {
		t.Run(c.name, c.run)
	}
}

// A flush that no ResponseWriter below can do begins no response: the handler may still fail.
func TestFlushThatNothingSupports(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	metered := r.meter.Handler(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		gatetest.Is(t, http.NewResponseController(w).Flush(), http.ErrNotSupported, "error")
		failure(500)(w, q)
	}))
	r.serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		metered.ServeHTTP(struct{ http.ResponseWriter }{w}, q)
	}))
	status, body := r.ask(chatPath, streamed)
	gatetest.Equal(t, status, 500, "status of %s", body)
	r.want(llm.OutcomeFailed, llm.Usage{}, 0)
}

// usedBy is a document with a usage of 8 and 2 tokens that names a model.
func usedBy(model string) http.HandlerFunc {
	return sent("", fmt.Sprintf(`{"model":%q,"usage":{"prompt_tokens":8,"completion_tokens":2}}`, model))
}

// priceAll gives models tariffs without more than prices of input and output, in micro-dollars a token.
func priceAll(prices map[string]int64) map[string]llm.Model {
	models := make(map[string]llm.Model)
	for name, p := range prices {
		models[name] = llm.Model{Tariff: llm.Tariff{Price: llm.Price{Input: p * 1_000_000, Output: p * 1_000_000}}}
	}
	return models
}

// The model that the response names has its own tariff, and an own one beats that of a file. Another
// model that served does not change the price if nobody knows it, but is reported. Where several may
// answer, the dearest is paid unless the response says which has. A deployment's name in a path is the
// operator's own.
func TestServedModelDecidesThePrice(t *testing.T) {
	models := func(cfg *llm.Config) {
		cfg.Models = priceAll(map[string]int64{
			"small": 1, "vendor/small": 1, "vendor/small-new-4.5": 1, "small-new-4.5-latest": 1, "large": 7, "ours": 1,
		})
	}
	file := filepath.Join(t.TempDir(), "prices.json")
	const listed = `{"litellm_provider":"openai","input_cost_per_token":1.25e-06,"output_cost_per_token":1e-05}`
	gatetest.NoError(t, os.WriteFile(file, []byte(`{"gpt-4o":`+listed+`,"gpt-4o-2024-11-20":`+listed+`}`), 0o600))
	own := func(cfg *llm.Config) {
		cfg.Models = priceAll(map[string]int64{"gpt-4o": 1, "ours": 1})
		cfg.Prices = load(t, llm.PricesConfig{Paths: []string{file}})
	}
	for _, c := range []struct {
		served, path, asked string
		change              func(*llm.Config)
		cost                int64
		unknown             []string
	}{
		{"large", chatPath, `{"model":"small"}`, models, 70, nil},
		{"large-2026-11-01", chatPath, `{"model":"small"}`, models, 70, []string{"model large-2026-11-01"}}, // the dearest
		{"small", chatPath, `{"model":"small"}`, models, 10, nil},
		{"small-2026-11-01", chatPath, `{"model":"small"}`, models, 10, nil},
		{"Small-2026-11-01", chatPath, `{"model":"vendor/small"}`, models, 10, nil},
		{"", chatPath, `{"model":"small"}`, models, 10, nil},
		{"vendor/4.5-small-new-20250929", chatPath, `{"model":"vendor/small-new-4.5"}`, models, 10, nil},
		{"small-new-4-5-latest", chatPath, `{"model":"vendor/small-new-4.5"}`, models, 10, nil},
		{"small-new-4.5-2025-09-29", chatPath, `{"model":"small-new-4.5-latest"}`, models, 10, nil},
		{"small-0613", chatPath, `{"model":"small"}`, models, 10, nil},
		{"small@20250929", chatPath, `{"model":"small"}`, models, 10, nil},
		{"small-001", chatPath, `{"model":"small"}`, models, 10, nil},
		{"small-new-5.4", chatPath, `{"model":"vendor/small-new-4.5"}`, models, 70, []string{"model small-new-5.4"}},
		{"small-pro", chatPath, `{"model":"small"}`, models, 70, []string{"model small-pro"}},
		{"small-pro-2026-11-01", chatPath, `{"model":"small"}`, models, 70, []string{"model small-pro-2026-11-01"}},
		{"my-small-killer", chatPath, `{"model":"small"}`, models, 70, []string{"model my-small-killer"}},
		{"2026-11-01-small", chatPath, `{"model":"small"}`, models, 70, []string{"model 2026-11-01-small"}},
		{"small-9999", chatPath, `{"model":"small"}`, models, 70, []string{"model small-9999"}},
		{"gpt-x-2026-11-01", "/openai/deployments/ours/chat/completions", `{"messages":[]}`, models, 10, nil},
		{"", chatPath, `{"model":"small","models":["large"]}`, models, 70, nil},
		{"small", chatPath, `{"model":"small","models":["large"]}`, models, 10, nil},
		{"small-2026-11-01", chatPath, `{"model":"small","models":["large"]}`, models, 10, nil},
		{"large", chatPath, `{"model":"small","models":["large"]}`, models, 70, nil},
		{"other", chatPath, `{"model":"small","models":["large"]}`, models, 70, []string{"model other"}},
		{"gpt-4o-2024-11-20", chatPath, `{"model":"gpt-4o"}`, own, 10, nil},
		{"gpt-4o-2024-11-20", "/openai/deployments/gpt-4o/chat/completions", `{}`, own, 10, nil},
		{"gpt-4o-2024-11-20", "/openai/deployments/ours/chat/completions", `{}`, own, 10, nil},
	} {
		e := exchange{path: c.path, ask: c.asked, answer: usedBy(c.served), money: true, change: c.change,
			usage: llm.Usage{Input: 8, Output: 2}, cost: c.cost, unknown: c.unknown}
		t.Run(c.served+" for "+c.asked, e.run)
	}
}

// What a request may cost is held while it runs: by its own caps and models, the tier that it asks for,
// and the tariff of its model. A model in its path, in models and in fallbacks must be known, and the
// dearest is held.
func TestWhatIsHeld(t *testing.T) {
	tiers := func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each, Factors: map[string]int64{
			"service_tier:priority": 2000, "service_tier:flex": 500, "speed:fast": 3000,
		}}}}
	}
	several := func(cfg *llm.Config) {
		cfg.Models = twoModels()
		cfg.Models["prompt:pmpt_1"] = cfg.Models["small"]
		cfg.Models["a/large"] = llm.Model{Tariff: llm.Tariff{Price: llm.Price{Input: 20_000_000, Output: 30_000_000}}}
	}
	negotiated := func(cfg *llm.Config) {
		cfg.Models = twoModels()
		cfg.Tariff = func(model string, _ map[string]string, _ time.Time) (llm.Tariff, bool) {
			return llm.Tariff{Price: llm.Price{Input: 2_000_000, Output: 2_000_000}}, model == "large"
		}
	}
	capped := func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"large": {Tariff: llm.Tariff{Price: each}}, "small": {MaxOutput: 8000, Tariff: llm.Tariff{Price: each}}}
	}
	const prompt = `"max_tokens":5,"messages":[{"role":"user","content":"12345678"}]}`
	const engines, deployments = "/engines/large/chat/completions", "/openai/deployments/"
	for _, c := range []struct {
		name, path, ask string
		change          func(*llm.Config)
		models          string // that the request names
		held            int64  // 0: it is refused
	}{
		{"a dearer tier", chatPath, `{"model":"m","max_tokens":20,"service_tier":"priority"}`, tiers, "m", 40},
		{"a cheaper tier", chatPath, `{"model":"m","max_tokens":20,"service_tier":"Flex"}`, tiers, "m", 10},
		{"any tier", chatPath, `{"model":"m","max_tokens":20,"service_tier":"auto"}`, tiers, "m", 20},
		{"no tier", chatPath, `{"model":"m","max_tokens":20,"service_tier":null}`, tiers, "m", 20},
		{"an unknown tier: the dearest", chatPath, `{"model":"m","max_tokens":20,"service_tier":"ultra"}`, tiers, "m", 40},
		{"speed", messagesPath, `{"model":"m","max_tokens":20,"speed":"fast"}`, tiers, "m", 60},
		{"Converse's speed", "/model/m/converse", `{"inferenceConfig":{"maxTokens":20},"performanceConfig":{"latency":"optimized"}}`, tiers, "m", 60},
		{"Converse's tier", "/model/m/converse", `{"inferenceConfig":{"maxTokens":20},"serviceTier":{"type":"priority"}}`, tiers, "m", 40},
		{"Gemini's tier", "/v1beta/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":20},"service_tier":"priority"}`, tiers, "m", 40},
		{"the same in its older spelling", "/v1beta/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":20},"serviceTier":"SERVICE_TIER_PRIORITY"}`, tiers, "m", 40},
		{"no tier of Gemini's", "/v1beta/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":20},"service_tier":"SERVICE_TIER_UNSPECIFIED"}`, tiers, "m", 20},
		{"a negotiated tariff", chatPath, `{"model":"large",` + prompt, negotiated, "large", 24},
		{"a stated cap", chatPath, `{"model":"large","max_tokens":30000}`, capped, "large", 30_000},
		{"a cap above what the model writes", chatPath, `{"model":"small","max_tokens":30000}`, capped, "small", 8000},
		{"the default cap", chatPath, `{"model":"large"}`, capped, "large", 4096},
		{"the model's cap", chatPath, `{"model":"small"}`, capped, "small", 8000},
		{"several choices", chatPath, `{"model":"large","max_tokens":9,"n":3}`, capped, "large", 27},
		{"body", chatPath, `{"model":"small",` + prompt, several, "small", 12},
		{"engine", "/v1" + engines, `{` + prompt, several, "large", 120},
		{"engine and body", engines, `{"model":"small",` + prompt, several, "large small", 120},
		{"unknown engine", "/engines/other/chat/completions", `{"model":"small",` + prompt, several, "", 0},
		{"engine, unknown body", "/engines/small/chat/completions", `{"model":"other",` + prompt, several, "", 0},
		{"Docker's engine", "/engines/llama.cpp/v1/chat/completions", `{"model":"small",` + prompt, several, "small", 12},
		{"deployment", deployments + "large/chat/completions", `{"model":"small",` + prompt, several, "large small", 120},
		{"deep deployment", deployments + "a/large/chat/completions", `{"model":"small",` + prompt, several, "a/large small", 290},
		{"unknown deep deployment", deployments + "b/large/chat/completions", `{"model":"small",` + prompt, several, "", 0},
		{"models", chatPath, `{"model":"small","models":["small","large"],` + prompt, several, "small large", 120},
		{"models alone", chatPath, `{"models":["small","large"],` + prompt, several, "small large", 120},
		{"unknown in models", chatPath, `{"model":"small","models":["other"],` + prompt, several, "", 0},
		{"fallbacks", messagesPath, `{"model":"small","fallbacks":[{"model":"large"}],` + prompt, several, "small large", 120},
		{"cap of a fallback", messagesPath, `{"model":"small","fallbacks":[{"model":"small","max_tokens":50}],` + prompt, several, "small", 57},
		{"names as fallbacks", chatPath, `{"model":"small","fallbacks":["large"],` + prompt, several, "small large", 120},
		{"unknown in fallbacks", chatPath, `{"model":"small","fallbacks":[{"model":"other"}],` + prompt, several, "", 0},
		{"fallback of another shape", chatPath, `{"model":"small","fallbacks":[{"small":["other"]}],` + prompt, several, "", 0},
		{"stored prompt", "/responses", `{"prompt":{"id":"pmpt_1"},"max_output_tokens":5,"input":"12345678"}`, several, "prompt:pmpt_1", 11},
		{"unknown stored prompt", "/responses", `{"prompt":{"id":"pmpt_2"},` + prompt, several, "", 0},
		{"stored prompt and model", "/responses", `{"model":"small","prompt":{"id":"pmpt_2"},"max_output_tokens":5,"input":"12345678"}`,
			several, "small", 11},
		{"no other", chatPath, `{"model":"small","models":null,"fallbacks":[],` + prompt, several, "small", 12},
	} {
		t.Run(c.name, func(t *testing.T) {
			named := ""
			e := exchange{path: c.path, ask: c.ask, money: true, change: c.change, held: c.held, refused: c.held == 0, outcome: llm.OutcomeFailed}
			e.handle = func(w http.ResponseWriter, q *http.Request) {
				named = strings.Join(llm.ModelsFrom(q.Context()), " ")
				failure(500)(w, q)
			}
			e.run(t)
			gatetest.Equal(t, named, c.models, "it names")
		})
	}
}

// byPiece is a model whose tokens are free and whose pieces cost 60,000 micro-dollars each, and a
// tenth of one a millisecond.
func byPiece(cfg *llm.Config) {
	cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: free.Price, Units: map[string]int64{
		"rerank_search": 60_000_000, "web_search": 60_000_000, "file_search": 60_000_000, "container": 60_000_000,
		"image_generation": 60_000_000, "maps_prompt": 60_000_000, "image": 60_000_000, "audio_ms": 100,
	}}}}
}

// What a request may be billed for by the piece is held while it runs, and goes back if it is not used.
// A stream that breaks off counts the searches that it may have made, and an answer that states nothing
// of what its model is billed by costs the estimate, whatever format its client picks. The costs of
// sound are of 2,400,000 bytes.
func TestPieces(t *testing.T) {
	sound, sounds := form(t, 2_400_000, "model", "m", "response_format", "srt")
	short, shorts := form(t, 10, "model", "m", "response_format", "text")
	const gemini, transcriptions = "/v1beta/models/m:generateContent", "/v1/audio/transcriptions"
	const rerank, images = `{"model":"m","query":"q","documents":["a"]}`, `{"model":"m","prompt":"p","n":2}`
	const search = `{"model":"m","stream":true,"max_tokens":50,"web_search_options":{}}`
	tokenless := func(cfg *llm.Config) { cfg.Models = map[string]llm.Model{"m": {Tariff: free}} }
	second := []string{"estimate of audio_ms"}
	for _, c := range []exchange{
		{name: "rerank", path: "/v2/rerank", ask: rerank, held: 60_000},
		{name: "image", path: "/v1/images/generations", ask: images, held: 120_000},
		{name: "sound", path: transcriptions, ask: sound, contentType: sounds, held: 60_012},
		{name: "search of a chat", ask: search, held: 60_000},
		{name: "search of OpenRouter's", ask: `{"model":"m","plugins":[{"id":"web"}]}`, held: 60_000},
		{name: "search of Anthropic's", path: messagesPath, ask: `{"model":"m","max_tokens":9,"tools":[{"type":"web_search_20250305"}]}`, held: 60_000},
		{name: "search of files", path: responsesPath, ask: `{"model":"m","tools":[{"type":"file_search"}]}`, held: 60_000},
		{name: "shell", path: responsesPath, ask: `{"model":"m","tools":[{"type":"shell"}]}`, held: 60_000},
		{name: "drawing", path: responsesPath, ask: `{"model":"m","tools":[{"type":"function"},{"type":"image_generation"}]}`, held: 60_000},
		{name: "search of Gemini's", path: gemini, ask: `{"tools":[{"googleSearch":{}}]}`, held: 60_000},
		{name: "maps", path: gemini, ask: `{"tools":[{"google_maps":{}}]}`, held: 60_000},
		{name: "not used", ask: search, held: 60_000, answer: chat(3, 2), usage: llm.Usage{Input: 3, Output: 2}},
		{name: "not priced", ask: search, change: tokenless, answer: chat(3, 2), usage: llm.Usage{Input: 3, Output: 2}},
		{name: "a cut stream", ask: search, answer: events(3, abort), outcome: llm.OutcomeCut, usage: llm.Usage{Output: 3}, cost: 60_000,
			unknown: []string{"estimate of web_search"}},
		{name: "subtitles", path: transcriptions, ask: sound, contentType: sounds, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 1536, Output: 4096},
			answer: sent("text/plain", "1\n00:00:00,000 --> 00:00:04,000\nHello\n"), cost: 60_012, unknown: second},
		{name: "a short text", path: transcriptions, ask: short, contentType: shorts, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 1536, Output: 4096},
			answer: sent("text/plain", "Hello\n"), cost: 1000, unknown: second},
		{name: "a text in JSON", path: transcriptions, ask: sound, contentType: sounds, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 1536, Output: 4096},
			answer: sent("application/json", `{"text":"Hello"}`), cost: 60_012, unknown: second},
		{name: "a transcription that states its seconds", path: transcriptions, ask: sound, contentType: sounds,
			answer: sent("application/json", `{"text":"Hello","usage":{"type":"duration","seconds":60}}`), cost: 6000},
		{name: "a rerank that states tokens alone", path: "/v1/rerank", ask: rerank, usage: llm.Usage{Input: 9}, cost: 60_000,
			answer: sent("", `{"results":[],"usage":{"total_tokens":9}}`), unknown: []string{"estimate of rerank_search"}},
		{name: "a rerank that states nothing", path: "/v1/rerank", ask: rerank, outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 1}, cost: 60_000,
			answer: sent("", `{"results":[]}`), unknown: []string{"estimate of rerank_search"}},
		{name: "a rerank that states its searches", path: "/v1/rerank", ask: rerank, cost: 120_000,
			answer: sent("", `{"results":[],"meta":{"billed_units":{"search_units":2}}}`)},
		{name: "images", path: "/v1/images/generations", ask: images, outcome: llm.OutcomeUnreported, cost: 120_000, usage: llm.Usage{Input: 1, Output: 8192},
			answer: sent("", `{"data":[{"b64_json":"aGk="},{"b64_json":"aGk="}]}`), unknown: []string{"estimate of image"}},
	} {
		c.money = true
		if c.change == nil {
			c.change = byPiece
		}
		if c.answer == nil {
			c.answer, c.outcome = failure(500), llm.OutcomeFailed
		}
		t.Run(c.name, c.run)
	}
}

// A budget counts what its unit says, with the prices of the model, and what cannot be told costs what
// is estimated.
func TestWhatIsPaid(t *testing.T) {
	// 100 tokens of the prompt, of which 40 come from a cache, and 50 of output.
	cached := sent("", `{"usage":{"prompt_tokens":100,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens":50}}`)
	at := func(p llm.Price) func(*llm.Config) {
		return func(cfg *llm.Config) { cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: p}}} }
	}
	of := func(unit core.Unit) func(*llm.Config) {
		return func(cfg *llm.Config) { cfg.Budgets[0].Policy = policy("budget", unit, 10_000) }
	}
	estimate := func(u llm.Usage) func(*llm.Config) {
		return func(cfg *llm.Config) {
			cfg.ChargeEvery = 5
			cfg.Estimate = func(*http.Request, llm.Request, []byte) (llm.Usage, error) { return u, nil }
		}
	}
	trusting := func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each}}}
		cfg.StatedCost = llm.StatedCostTrust
	}
	priority := func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each, Factors: map[string]int64{"service_tier:priority": 2000}}}}
	}
	encoded := func(encoding string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			z := gzip.NewWriter(w)
			fmt.Fprint(z, `{"choices":[{"message":{"content":"Hello"}}],"usage":{"prompt_tokens":7,"completion_tokens":11}}`)
			_ = z.Close()
		}
	}
	usage := llm.Usage{Input: 60, CacheRead: 40, Output: 50}
	for _, c := range []exchange{
		{name: "tokens", answer: cached, usage: usage},
		{name: "a tariff does not change tokens", answer: cached, usage: usage, change: at(llm.Price{Input: 10, Output: 40})},
		{name: "input tokens", answer: cached, usage: usage, change: of(core.UnitInputTokens), cost: 100},
		{name: "output tokens", answer: cached, usage: usage, change: of(core.UnitOutputTokens), cost: 50},
		{name: "price of the cache is that of the input", answer: cached, usage: usage, money: true, cost: 150, change: at(each)},
		{name: "money", answer: cached, usage: usage, money: true, cost: 942,
			change: at(llm.Price{Input: 3_000_000, CacheRead: 300_000, Output: 15_000_000})},
		{name: "money is rounded up once", answer: cached, usage: usage, money: true, cost: 1, change: at(llm.Price{Input: 1, CacheRead: 1, Output: 1})},
		{name: "exact money is not rounded", answer: cached, usage: usage, money: true, cost: 2,
			change: at(llm.Price{Input: 10_000, CacheRead: 10_000, Output: 20_000})},
		{name: "an absurd price", answer: cached, usage: usage, cost: 230_584_300_921_370, change: func(cfg *llm.Config) {
			of(core.UnitMicroDollars)(cfg)
			at(llm.Price{Input: 1, Output: 1 << 62})(cfg)
		}},
		{name: "free model", answer: cached, usage: usage, money: true, change: at(free.Price)},
		{name: "a whole answer without a tier is of the tier that was asked for", money: true, change: priority, cost: 40,
			ask: `{"model":"m","max_tokens":20,"service_tier":"priority"}`, answer: sent("", `{"choices":[]}`),
			outcome: llm.OutcomeUnreported, usage: llm.Usage{Output: 20}},
		{name: "a tier that the response states", money: true, change: priority, cost: 5, held: 40,
			ask:    `{"model":"m","max_tokens":20,"service_tier":"priority"}`,
			answer: sent("", `{"service_tier":"default","usage":{"prompt_tokens":3,"completion_tokens":2}}`), usage: llm.Usage{Input: 3, Output: 2}},
		{name: "an answer that cites a page is a prompt with searches", money: true, usage: llm.Usage{Input: 3, Output: 2}, cost: 40,
			answer: sent("", `{"choices":[{"message":{"annotations":[{"type":"url_citation"}]}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`),
			change: func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each, Units: map[string]int64{"grounded_prompt": 35_000}}}}
			}},
		{name: "the stated bill of a stream that breaks off is not the bill", money: true, change: trusting, cost: 12, outcome: llm.OutcomeCut,
			usage: llm.Usage{Input: 7, Output: 5}, answer: events(0, write(strings.Repeat(sseOf(
				`{"choices":[{"delta":{"content":"ok"}}],"usage":{"prompt_tokens":7,"completion_tokens":1,"cost":0.000001}}`), 5), abort))},
		{name: "a tiny estimate", answer: chat(7, 11), usage: llm.Usage{Input: 7, Output: 11},
			change: estimate(llm.Usage{Input: math.MinInt64, Output: math.MinInt64})},
		{name: "a huge estimate", answer: chat(7, 11), usage: llm.Usage{Input: 7, Output: 11},
			change: estimate(llm.Usage{Input: math.MaxInt64, CacheRead: math.MaxInt64, Output: math.MaxInt64})},
		{name: "an estimate of nothing", answer: chat(7, 11), usage: llm.Usage{Input: 7, Output: 11}, change: estimate(llm.Usage{})},
		{name: "a default cap", ask: `{"model":"m","n":2}`, answer: sent("", `{"choices":[]}`), held: 8192, outcome: llm.OutcomeUnreported,
			usage: llm.Usage{Output: 8192}},
		{name: "a copy of gzip is read", answer: encoded("gzip"), usage: llm.Usage{Input: 7, Output: 11}},
		{name: "other encodings keep the estimate", answer: encoded("br"), outcome: llm.OutcomeUnreported, usage: llm.Usage{Input: 3, Output: 50}},
	} {
		t.Run(c.name, c.run)
	}
}

// form returns a form with a file of a size, and its type.
func form(t *testing.T, size int, fields ...string) (body, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for i := 0; i < len(fields); i += 2 {
		_ = w.WriteField(fields[i], fields[i+1])
	}
	part := gatetest.Must(w.CreateFormFile("file", "sound.mp3"))(t)
	_, _ = part.Write(make([]byte, size))
	_ = w.Close()
	return b.String(), w.FormDataContentType()
}
