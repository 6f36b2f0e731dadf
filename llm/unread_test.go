package llm_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// What a response states of its use that no table names is reported, and nothing else is.
func TestUnreadIsReported(t *testing.T) {
	const gemini = "/v1beta/models/m:generateContent"
	for _, c := range []struct {
		name, path, body string
		unread           []string
	}{
		{"a number in a usage", chatPath,
			`{"usage":{"prompt_tokens":2,"completion_tokens":3,"holograms":4}}`, []string{"usage holograms"}},
		{"numbers at every level", chatPath,
			`{"usage":{"prompt_tokens":2,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":1,"frames":7},` +
				`"new_details":{"deep":{"pixels":[8,9]}}}}`, []string{"usage frames", "usage pixels"}},
		{"once for all events", chatPath, sseOf(
			`{"choices":[{"delta":{"content":"ok"}}],"usage":{"prompt_tokens":2,"completion_tokens":1,"holograms":1}}`,
			`{"choices":[{"delta":{}}],"usage":{"prompt_tokens":2,"completion_tokens":3,"holograms":4}}`, "[DONE]"),
			[]string{"usage holograms"}},
		{"nothing new", chatPath,
			`{"usage":{"prompt_tokens":2,"completion_tokens":3,"total_tokens":5,"holograms":0,"latency":0.17,"queue_time":1,` +
				`"cost":2,"cost_details":{"upstream_inference_cost":1},"is_byok":false,"note":"7","x_details":[{"prompt_tokens":2}],` +
				`"completion_tokens_details":{"reasoning_tokens":1,"rejected_prediction_tokens":2},` +
				`"prompt_tokens_details":{"text_tokens":2}},"took":{"holograms":4}}`, nil},
		{"a tool of Anthropic's", messagesPath,
			`{"content":[{"text":"ok"}],"usage":{"input_tokens":2,"output_tokens":3,"server_tool_use":{"web_search_requests":1,` +
				`"code_execution_requests":2}}}`, []string{"usage code_execution_requests"}},
		{"an item", responsesPath,
			`{"output":[{"type":"draw_call"},{"type":"function_call"},{"type":"mcp_call"},{"type":"message"}],` +
				`"usage":{"input_tokens":2,"output_tokens":3}}`, []string{"item draw_call"}},
		{"an item of a stream", responsesPath, sseOf(
			`{"type":"response.output_item.done","item":{"type":"draw_call"}}`,
			`{"type":"response.completed","response":{"output":[{"type":"draw_call"}],"usage":{"input_tokens":2,"output_tokens":3},`+
				`"tool_usage":{"draw":{"num_requests":6}}}}`), []string{"item draw_call", "usage num_requests"}},
		{"Gemini", gemini,
			`{"candidates":[],"usageMetadata":{"promptTokenCount":2,"candidatesTokenCount":3,"totalTokenCount":5,` +
				`"toolUsePromptTokensDetails":[{"modality":"TEXT","tokenCount":1}],"frameCount":7}}`, []string{"usage frameCount"}},
		{"Converse", "/model/m/converse", `{"usage":{"inputTokens":2,"outputTokens":3,"totalTokens":5,"frames":7}}`,
			[]string{"usage frames"}},
		{"Cohere", "/v2/chat", `{"usage":{"billed_units":{"input_tokens":2,"output_tokens":3,"images":4},` +
			`"tokens":{"input_tokens":9,"output_tokens":9},"cached_tokens":1}}`, []string{"usage images"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitMicroDollars, 1e9, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{
					Price: each, Units: map[string]int64{"web_search": 1000, "mcp": llm.Free},
				}}}
			})
			r.answer = sent("", c.body)
			read(t, r.post(c.path, `{"model":"m"}`))
			report := <-r.reports
			if report.Outcome != llm.OutcomeReported || !slices.Equal(report.Unread, c.unread) ||
				!slices.Equal(report.Unknown, c.unread) {
				t.Errorf("%v, unread %q, unknown %q; want %q", report.Outcome, report.Unread, report.Unknown, c.unread)
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

// Numbers that nobody uses are none, and the response counts as its estimate.
func TestAbsurdNumbersAreNone(t *testing.T) {
	for _, c := range []struct{ name, path, ask, body string }{
		{"tokens", chatPath, `{"model":"m"}`, `{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":1e30,"completion_tokens":3}}`},
		{"seconds", "/v1/audio/transcriptions", `{"model":"m"}`, `{"text":"ok","usage":{"type":"duration","seconds":1e30}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitMicroDollars, 1e9, func(cfg *llm.Config) {
				cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{
					Price: each, Units: map[string]int64{"audio_ms": 100},
				}}}
			})
			r.answer = sent("", c.body)
			read(t, r.post(c.path, c.ask))
			if report := <-r.reports; report.Outcome != llm.OutcomeUnreported || report.Cost > 6000 {
				t.Errorf("%+v", report)
			}
		})
	}
}
