package llm_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

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

// With KeepBody nothing is asked of the server. Formats without stream_options are never asked.
func TestStreamOptionsAreNotForEveryServer(t *testing.T) {
	for path, keep := range map[string]bool{chatPath: true, responsesPath: false, messagesPath: false, "/api/chat": false} {
		r := newRig(t, core.UnitTokens, 100_000, func(cfg *llm.Config) { cfg.KeepBody = keep })
		r.answer = sent("text/event-stream", "data: [DONE]\n\n")
		read(t, r.post(path, small))
		if r.asked[0] != small {
			t.Errorf("%s: the server was asked %s", path, r.asked[0])
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

// A refusal has the shape that the clients of its format know.
func TestRefusalsOfEveryFormat(t *testing.T) {
	for path, want := range map[string]string{
		"/v1beta/models/m:generateContent": `{"error":{"code":429,"message":"","status":"RESOURCE_EXHAUSTED",` +
			`"details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"SECONDSs"}]}}`,
		"/model/m/converse": `{"message":""}`,
		"/v2/chat":          `{"message":""}`,
		"/api/chat":         `{"error":""}`,
	} {
		r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) { cfg.Guard.LongestWait = core.Never })
		r.spend(1000)
		response := r.post(path, `{"model":"m"}`)
		body := strings.TrimSpace(read(t, response))
		want = strings.Replace(want, "SECONDS", response.Header.Get("Retry-After"), 1)
		message := strings.Split(want, `""`)
		if response.StatusCode != 429 || !strings.HasPrefix(body, message[0]) || !strings.HasSuffix(body, message[1]) ||
			response.Header.Get("X-Should-Retry") == "" {
			t.Errorf("%s: %d %s %v", path, response.StatusCode, body, response.Header)
		}
	}
}
