package llm_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// sent is a handler that sends a response in one piece.
func sent(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

// Streams that are odd, and that servers send all the same.
func TestOddStreams(t *testing.T) {
	const (
		tail  = `{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`
		delta = `{"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":null}],"usage":null}`
		end   = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`
		first = `{"choices":[],"prompt_filter_results":[{"prompt_index":0}],"usage":null}`
		done  = "data: [DONE]\n\n"
	)
	const stream, document = "text/event-stream;charset=UTF-8", "application/json"
	for _, c := range []struct {
		name, path, contentType, ask, body string
		shown                              bool // the usage reaches the client
	}{
		{"filter results first", chatPath, stream, streamed,
			"data: " + first + "\n\ndata: " + delta + "\n\ndata: " + end + "\n\ndata: " + tail + "\n\n" + done, false},
		{"comments", chatPath, stream, streamed,
			": PROCESSING\n\ndata: " + delta + "\n\n: ping\n\ndata: " + tail + "\n\n" + done, false},
		{"no space", chatPath, stream, streamed,
			"data:" + delta + "\n\ndata:" + end + "\n\ndata:" + tail + "\n\ndata:[DONE]\n\n", false},
		{"CR and LF", chatPath, stream, streamed,
			"data: " + delta + "\r\n\r\ndata: " + tail + "\r\n\r\ndata: [DONE]\r\n\r\n", false},
		{"no marker", chatPath, stream, streamed, "data: " + delta + "\n\ndata: " + tail + "\n\n", false},
		{"two lines", chatPath, stream, streamed,
			"data: " + delta + "\n\ndata: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":7,\n" +
				"data: \"completion_tokens\":3}}\n\n" + done, false},
		{"id and retry", chatPath, stream, streamed,
			"retry: 3000\nid: 1\nevent: message\ndata: " + delta + "\n\nid: 2\ndata: " + tail + "\n\n" + done, false},
		{"usage chunk without choices", chatPath, stream, streamed,
			"data: " + delta + "\n\ndata: {\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n" + done, false},
		{"labelled as text", chatPath, "text/plain", streamed,
			"data: " + delta + "\n\ndata: " + tail + "\n\n" + done, false},
		{"labelled as JSON, after blank lines", chatPath, document, streamed,
			"\n\r\n\ndata: " + delta + "\n\ndata: " + tail + "\n\n" + done, false},
		{"unasked", chatPath, stream, `{"model":"m","stream":false,"max_tokens":50}`,
			"data: " + delta + "\n\ndata: " + tail + "\n\n" + done, true},
		{"document labelled as a stream", chatPath, stream, streamed,
			`{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, true},
		{"blank lines before the document", chatPath, document, `{"model":"m"}`,
			"\n\n\r\n   \n" + `{"choices":[{"message":{"content":"ok"}}],"usage":{"prompt_tokens":7,"completion_tokens":3}}` + "\n\n", true},
		{"responses without names of events", responsesPath, stream, `{"model":"m","stream":true}`,
			`data: {"type":"response.created","response":{"status":"in_progress"}}` + "\n\n" +
				`data: {"type":"response.output_text.delta","delta":"ok"}` + "\n\n" +
				`data: {"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":3,` +
				`"total_tokens":10,"input_tokens_details":null}}}` + "\n\n" + done, true},
		{"lines of Ollama labelled as JSON", "/api/chat", document, `{"model":"m"}`,
			`{"message":{"content":"ok"},"done":false}` + "\n" +
				`{"message":{},"done":true,"prompt_eval_count":7,"eval_count":3}` + "\n", true},
		{"an array of Gemini", "/v1beta/models/m:streamGenerateContent", document, `{}`,
			`[{"candidates":[{"content":{"parts":[{"text":"ok"}]}}],"usageMetadata":{"promptTokenCount":7}}` + ",\r\n" +
				`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":3}}]`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 100_000, nil)
			r.answer = sent(c.contentType, c.body)
			body := read(t, r.post(c.path, c.ask))
			r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 3}, 10)
			if shown := body == c.body; shown != c.shown || strings.Contains(body, "_tokens") && !c.shown {
				t.Errorf("the client was sent %s", body)
			}
		})
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

// Formats of which the cases have none.
func TestFormats(t *testing.T) {
	const document = "application/json"
	for _, c := range []struct {
		name, path, ask, body string
		header                []string
		want                  llm.Usage
		estimate              llm.Usage
	}{
		{"completions", "/v1/completions", `{"model":"m","prompt":["abcd",[1,2,3]],"max_tokens":4,"n":2,"best_of":3}`,
			`{"choices":[{"text":"ok"}],"usage":{"prompt_tokens":4,"completion_tokens":8,"total_tokens":12}}`, nil,
			llm.Usage{Input: 4, Output: 8}, llm.Usage{Input: 4, Output: 12}},
		{"embeddings of tokens", "/openai/deployments/m/embeddings", `{"input":[[1,2,3],[4]]}`,
			`{"data":[],"usage":{"prompt_tokens":4,"total_tokens":4}}`, nil,
			llm.Usage{Input: 4}, llm.Usage{Input: 4}},
		{"embeddings with a total only", "/v1/embeddings", `{"model":"m","input":"abcd"}`,
			`{"data":[],"usage":{"total_tokens":4}}`, nil, llm.Usage{Input: 4}, llm.Usage{Input: 1}},
		{"rerank by tokens", "/v1/rerank", `{"model":"m","query":"abcd","documents":["abcd",{"text":"abcd"}]}`,
			`{"results":[],"usage":{"total_tokens":4}}`, nil, llm.Usage{Input: 4}, llm.Usage{Input: 3}},
		{"invoke", "/model/m/invoke", `{"max_tokens":9,"messages":[{"role":"user","content":"abcdefgh"}]}`,
			`{"content":[{"type":"text","text":"ok"}],"usage":{"input_tokens":4,"output_tokens":8}}`,
			[]string{
				"X-Amzn-Bedrock-Input-Token-Count", "4", "X-Amzn-Bedrock-Output-Token-Count", "8",
				"X-Amzn-Bedrock-Cache-Read-Input-Token-Count", "20",
			},
			llm.Usage{Input: 4, CacheRead: 20, Output: 8}, llm.Usage{Input: 3, Output: 9}},
		{"invoke of another model", "/model/m/invoke", `{"prompt":"abcdefgh","max_gen_len":9}`,
			`{"generation":"ok"}`,
			[]string{"X-Amzn-Bedrock-Input-Token-Count", "4", "X-Amzn-Bedrock-Output-Token-Count", "8"},
			llm.Usage{Input: 4, Output: 8}, llm.Usage{Input: 2, Output: 9}},
		{"transcription by tokens", "/v1/audio/transcriptions", `{"model":"m"}`,
			`{"text":"ok","usage":{"type":"tokens","input_tokens":14,"input_token_details":{"audio_tokens":10,` +
				`"text_tokens":4},"output_tokens":8,"total_tokens":22}}`, nil,
			llm.Usage{Input: 4, AudioIn: 10, Output: 8}, llm.Usage{Output: 4096}},
		{"Converse of a model with another family of sums", "/model/m/converse", `{"inferenceConfig":{"maxTokens":9}}`,
			`{"usage":{"inputTokens":100,"outputTokens":8,"totalTokens":108,"cacheReadInputTokens":96}}`, nil,
			llm.Usage{Input: 4, CacheRead: 96, Output: 8}, llm.Usage{Output: 9}},
		{"a chat of a proxy with another family of sums", chatPath, `{"model":"m","max_tokens":9}`,
			`{"usage":{"prompt_tokens":4,"completion_tokens":8,"total_tokens":108,` +
				`"prompt_tokens_details":{"cached_tokens":96}}}`, nil,
			llm.Usage{Input: 4, CacheRead: 96, Output: 8}, llm.Usage{Output: 9}},
		{"thoughts in the total only", chatPath, `{"model":"m","max_tokens":9}`,
			`{"usage":{"prompt_tokens":4,"completion_tokens":8,"total_tokens":112}}`, nil,
			llm.Usage{Input: 4, Output: 108}, llm.Usage{Output: 9}},
		{"tools of xAI's in responses", responsesPath, `{"model":"m","max_output_tokens":9}`,
			`{"usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":96},"output_tokens":8,` +
				`"output_tokens_details":{"reasoning_tokens":0},"total_tokens":108,"num_sources_used":0,` +
				`"num_server_side_tools_used":4,"cost_in_usd_ticks":321281500,"server_side_tool_usage_details":` +
				`{"web_search_calls":0,"x_search_calls":4,"code_interpreter_calls":0,"file_search_calls":0,` +
				`"mcp_calls":0,"document_search_calls":0,"image_generation_calls":0},` +
				`"context_details":{"input_tokens":6647,"output_tokens":1757}}}`, nil,
			llm.Usage{Input: 4, CacheRead: 96, Output: 8}, llm.Usage{Output: 9}},
		{"two usages of Groq's", chatPath, `{"model":"m","max_tokens":9}`,
			`{"choices":[],"x_groq":{"id":"x","usage":{"queue_time":0.02,"prompt_tokens":4,"prompt_time":0.002,` +
				`"completion_tokens":8,"total_tokens":12,"total_time":0.06}},` +
				`"usage":{"prompt_tokens":0,"completion_tokens":8,"total_tokens":8}}`, nil,
			llm.Usage{Input: 4, Output: 8}, llm.Usage{Output: 9}},
		{"thoughts of Gemini that were cut off", "/v1/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":9}}`,
			`{"usageMetadata":{"promptTokenCount":844,"candidatesTokenCount":46,"totalTokenCount":2040,` +
				`"promptTokensDetails":[{"modality":"TEXT","tokenCount":844}],"thoughtsTokenCount":1150,` +
				`"serviceTier":"standard"}}`, nil,
			llm.Usage{Input: 844, Output: 1196, Reasoning: 1150}, llm.Usage{Output: 9}},
		{"sound of Gemini", "/v1/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":9}}`,
			`{"usageMetadata":{"promptTokenCount":120,"responseTokenCount":30,"thoughtsTokenCount":500,` +
				`"promptTokensDetails":[{"modality":"AUDIO","tokenCount":100},{"modality":"TEXT","tokenCount":20}],` +
				`"responseTokensDetails":[{"modality":"AUDIO","tokenCount":25},{"modality":"TEXT","tokenCount":5}]}}`, nil,
			llm.Usage{Input: 20, AudioIn: 100, Output: 505, AudioOut: 25, Reasoning: 500}, llm.Usage{Output: 9}},
		{"Cohere without billed units", "/v2/chat", `{"model":"m","max_tokens":9}`,
			`{"message":{"content":[{"type":"text","text":"ok"}]},"usage":{"tokens":{"input_tokens":4,"output_tokens":8}}}`, nil,
			llm.Usage{Input: 4, Output: 8}, llm.Usage{Output: 9}},
		{"Mistral on Bedrock", "/model/m/invoke", `{"max_tokens":9}`,
			`{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"stop_reason":"stop"}],` +
				`"amazon-bedrock-invocationMetrics":{"inputTokenCount":4,"outputTokenCount":8,"invocationLatency":5330}}`, nil,
			llm.Usage{Input: 4, Output: 8}, llm.Usage{Output: 9}},
		{"a blocked prompt of Gemini", "/v1/models/m:generateContent", `{"generationConfig":{"maxOutputTokens":9}}`,
			`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4,"totalTokenCount":4}}`, nil,
			llm.Usage{Input: 4}, llm.Usage{Output: 9}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 100_000, nil)
			r.answer = func(w http.ResponseWriter, q *http.Request) {
				for i := 0; i < len(c.header); i += 2 {
					w.Header().Set(c.header[i], c.header[i+1])
				}
				sent(document, c.body)(w, q)
			}
			read(t, r.post(c.path, c.ask))
			if got := r.want(llm.OutcomeReported, c.want, c.want.Total()); got.Estimate != c.estimate || got.Request.Model != "m" {
				t.Errorf("%+v, want an estimate of %+v", got, c.estimate)
			}
		})
	}
}

// A server that has the prompt in its cache may leave out its tokens. They count as estimated, and
// the output as stated.
func TestOutputWithoutInput(t *testing.T) {
	r := newRig(t, core.UnitTokens, 100_000, nil)
	r.answer = sent("application/x-ndjson", `{"message":{"content":"ok"},"done":true,"eval_count":3}`+"\n")
	read(t, r.post("/api/chat", `{"model":"m","messages":[{"content":"abcdefgh"}]}`))
	r.want(llm.OutcomeUnreported, llm.Usage{Input: 2, Output: 3}, 5)
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
	refused := r.post("/acme/large/generate", `{"stream":"x"}`)
	if body := read(t, refused); refused.StatusCode != 400 || !strings.HasPrefix(body, `{"error":"`) {
		t.Errorf("%d %s", refused.StatusCode, body)
	}
}

// What a server states of the bill of a stream that breaks off is not the bill, also if it is
// trusted.
func TestStatedCostOfACutStream(t *testing.T) {
	r := newRig(t, core.UnitMicroDollars, 1_000_000, func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: each}}}
		cfg.StatedCost = llm.StatedCostTrust
	})
	chunk := `data: {"choices":[{"delta":{"content":"ok"}}],"usage":{"prompt_tokens":7,"completion_tokens":1,"cost":0.000001}}` + "\n\n"
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Repeat(chunk, 5))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	response := r.post(chatPath, streamed)
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	r.want(llm.OutcomeCut, llm.Usage{Input: 7, Output: 5}, 12)
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
		charge := r.charge()
		charge.Cost = 1000
		if _, err := r.gate.Decide(t.Context(), charge); err != nil {
			t.Fatal(err)
		}
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
