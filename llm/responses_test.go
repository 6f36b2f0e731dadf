package llm_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// answered is a response of testdata/responses.json, and what a Meter must read of it: from public
// reports and recordings, in formats and framings that the cases do not have, with numbers that no
// table names, and with numbers that are none.
type answered struct {
	Name, Path, Type string
	Ask              json.RawMessage
	Headers          []string
	Body             json.RawMessage   // a document, or a string of another text
	Events           []json.RawMessage // of a stream
	Outcome          string            // reported if it is empty
	Usage, Estimate  caseTokens
	Units            map[string]int64
	Labels           map[string]string // if the case is about them
	Pico             int64             // of the stated cost
	Unread           []string          // in the event, and in Unknown if a price is asked for
	Hidden           bool              // the client is not shown the usage
}

// text returns a JSON string as what it says, and all other JSON as it is.
func text(raw json.RawMessage) string {
	var said string
	if json.Unmarshal(raw, &said) != nil {
		return string(raw)
	}
	return said
}

func (c *answered) body() string {
	if c.Events == nil {
		return text(c.Body)
	}
	var all []string
	for _, event := range c.Events {
		all = append(all, text(event))
	}
	return sseOf(all...)
}

// sseOf returns an event stream with these data.
func sseOf(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// sent is a handler that sends a response in one piece.
func sent(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		_, _ = io.WriteString(w, body)
	}
}

// The estimate of most requests is an input of 2 and an output of 50.
const askOf50 = `{"model":"m","max_tokens":50,"max_output_tokens":50,"messages":[{"content":"abcdefgh"}],"query":"abcdefgh"}`

func TestResponses(t *testing.T) {
	var all []answered
	decode(t, filepath.Join("testdata", "responses.json"), &all)
	for _, c := range all {
		t.Run(c.Name, func(t *testing.T) {
			money := policy("money", core.UnitMicroDollars, 1e12)
			r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
				cfg.Budgets = append(cfg.Budgets, llm.Budget{Policy: money, Key: tenant})
				cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{
					Price: each, Units: map[string]int64{"web_search": 1000, "mcp": llm.Free},
				}}}
			})
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				for _, line := range c.Headers {
					name, value, _ := strings.Cut(line, ": ")
					w.Header().Set(name, value)
				}
				sent(c.Type, c.body())(w, q)
			}
			body := read(t, r.post(c.Path, cmp.Or(string(c.Ask), askOf50)))
			if whole := body == c.body(); whole == c.Hidden || c.Hidden && strings.Contains(body, "_tokens") {
				t.Errorf("the client was sent %s", body)
			}
			got := <-r.reports
			want := c.Usage.usage(c.Usage.of("reasoning"))
			if got.Outcome.String() != cmp.Or(c.Outcome, "reported") || got.Usage != want || r.used() != want.Total() {
				t.Errorf("%v with %+v, %d used, want %s with %+v", got.Outcome, got.Usage, r.used(), c.Outcome, want)
			}
			if !maps.Equal(got.Units, c.Units) || got.Stated.Pico != c.Pico || got.Request.Model != "m" {
				t.Errorf("%v, %+v of %s, want %v, %d", got.Units, got.Stated, got.Request.Model, c.Units, c.Pico)
			}
			if c.Labels != nil && !maps.Equal(got.Labels, c.Labels) {
				t.Errorf("labels %v, want %v", got.Labels, c.Labels)
			}
			if c.Estimate != nil && got.Estimate != c.Estimate.usage(0) {
				t.Errorf("an estimate of %+v, want %v", got.Estimate, c.Estimate)
			}
			if !slices.Equal(got.Unread, c.Unread) || c.Unread != nil && !slices.Equal(got.Unknown, c.Unread) {
				t.Errorf("unread %q, unknown %q, want %q", got.Unread, got.Unknown, c.Unread)
			}
		})
	}
}

// A server that invents keys fills no memory.
func TestUnreadIsBounded(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1e9, nil)
	var b strings.Builder
	for c := 'a'; c <= 'z'; c++ {
		b.WriteString(`,"` + strings.Repeat(string(c), 200) + `":1`)
	}
	r.answer = sent("", `{"usage":{"prompt_tokens":2,"completion_tokens":3`+b.String()+`}}`)
	read(t, r.post(chatPath, `{"model":"m"}`))
	report := <-r.reports
	if len(report.Unread) != 16 || len(report.Unread[0]) > 64 || report.Outcome != llm.OutcomeReported {
		t.Errorf("%v %q", report.Outcome, report.Unread)
	}
}

// A server may state the usage so far and a finish_reason on every chunk. The stream is still
// charged, and ended, while it runs.
func TestUsageOnEveryChunkEndsNothing(t *testing.T) {
	for _, reason := range []string{"null", `"stop"`} {
		r := newRig(t, core.UnitOutputTokens, 300, func(cfg *llm.Config) {
			cfg.ChargeEvery, cfg.Overrun, cfg.MaxOutput = 50, llm.OverrunEnd, 100
		})
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := 1; q.Context().Err() == nil; i++ {
				fmt.Fprintf(w, `data: {"choices":[{"delta":{"content":"word "},"finish_reason":%s}],`+
					`"usage":{"prompt_tokens":5,"completion_tokens":%d,"total_tokens":%d}}`+"\n\n",
					reason, i*10, i*10+5)
				_ = http.NewResponseController(w).Flush()
			}
		})
		body := read(t, r.post(chatPath, `{"model":"m","stream":true}`))
		report := <-r.reports
		if !strings.Contains(body, `"error"`) || report.Outcome != llm.OutcomeCut || report.Usage.Output > 400 {
			t.Errorf("finish_reason %s: %d events, %+v", reason, strings.Count(body, "word"), report)
		}
	}
}

// A route of the configuration has the format of its choice, and may name the model.
func TestRoutes(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Routes = []llm.Route{
			{Path: "/acme/*/generate", Format: llm.FormatOllama},
			{Path: "/acme/*/stream", Format: llm.FormatOpenAIChat, Stream: true},
			{Path: "/v1/messages", Format: llm.FormatOpenAIChat}, // before Anthropic's own
			{Path: "/v2/embed", Format: llm.FormatCohereRerank},
		}
	})
	for _, c := range []struct {
		path, ask, answer, model string
		format                   llm.Format
		stream                   bool
	}{
		{"/acme/large/generate", `{"stream":false,"prompt":"abcd"}`,
			`{"response":"ok","done":true,"prompt_eval_count":20,"eval_count":3}`, "large", llm.FormatOllama, false},
		{"/acme/large/stream", `{}`, sseOf(`{"choices":[{"delta":{"content":"ok"}}]}`,
			`{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":3}}`, "[DONE]"), "large", llm.FormatOpenAIChat, true},
		{"/v1/messages", `{"model":"m"}`, `{"usage":{"prompt_tokens":20,"completion_tokens":3}}`, "m", llm.FormatOpenAIChat, false},
		{"/v1/chat/completions", `{"model":"m"}`, `{"usage":{"prompt_tokens":20,"completion_tokens":3}}`, "m", llm.FormatOpenAIChat, false},
		{"/v2/embed", `{"model":"m","texts":["abcd"]}`, `{"embeddings":{},"meta":{"billed_units":{"input_tokens":20}}}`, "m",
			llm.FormatCohereRerank, false},
	} {
		r.handle(sent("", c.answer))
		read(t, r.post(c.path, c.ask))
		got := <-r.reports
		if got.Outcome != llm.OutcomeReported || got.Usage.Input != 20 || got.Request.Model != c.model ||
			got.Request.Format != c.format || got.Request.Stream != c.stream {
			t.Errorf("%s: %+v", c.path, got)
		}
	}
	if status, body := r.ask("/acme/large/generate", `{"stream":"x"}`); status != 400 || !strings.HasPrefix(body, `{"error":"`) {
		t.Errorf("%d %s", status, body)
	}
}

func TestUnreportedStreamKeepsItsEstimate(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	words, usage := 10, `{"prompt_tokens":3,"completion_tokens":40}`
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range words {
			fmt.Fprint(w,
				"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word\"}}]}\n\n")
		}
		fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", usage)
	}
	read(t, r.post("/v1/chat/completions", streamed))
	<-r.reports
	words, usage = 30, "null" // 120 tokens by the ratio
	read(t, r.post("/v1/chat/completions", streamed))
	if report := <-r.reports; report.Usage.Output != 40 || report.Estimate.Output != 40 {
		t.Errorf("%+v", report)
	}
}
