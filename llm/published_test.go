package llm_test

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// sseOf returns an event stream with these data.
func sseOf(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// Responses that servers have sent, from public reports and recordings, count what was billed.
func TestPublishedResponses(t *testing.T) {
	const gemini = "/v1beta/models/m:generateContent"
	for _, c := range []struct {
		name, path, body string
		usage            llm.Usage
		units            map[string]int64
		pico             int64
		outcome          llm.Outcome
	}{
		{name: "Groq, recorded with curl", path: chatPath,
			body: `{"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello"},"logprobs":null,` +
				`"finish_reason":"stop"}],"usage":{"queue_time":0.265612444,"prompt_tokens":41,"prompt_time":0.012792436,` +
				`"completion_tokens":27,"completion_time":0.055172062,"total_tokens":68,"total_time":0.067964498},` +
				`"usage_breakdown":null,"x_groq":{"id":"req_01","seed":120908243},"service_tier":"on_demand"}`,
			usage: llm.Usage{Input: 41, Output: 27}},
		{name: "a proxy's own count beside Groq's", path: chatPath,
			body: `{"choices":[{"index":0,"message":{"content":"That's right!"},"finish_reason":"stop","logprobs":null}],` +
				`"x_groq":{"id":"xx","usage":{"prompt_tokens":21,"completion_tokens":31,"total_tokens":52}},` +
				`"usage":{"prompt_tokens":0,"completion_tokens":31,"total_tokens":31}}`,
			usage: llm.Usage{Input: 21, Output: 31}},
		{name: "OpenRouter through DeepInfra", path: chatPath,
			body: `{"model":"deepseek/deepseek-v4-pro","provider":"DeepInfra","service_tier":"default","choices":[` +
				`{"index":0,"finish_reason":"length","message":{"role":"assistant","content":"OK","reasoning":null}}],` +
				`"usage":{"prompt_tokens":8,"completion_tokens":1,"total_tokens":9,"cost":0.000013,"is_byok":false,` +
				`"prompt_tokens_details":{"cached_tokens":0,"cache_write_tokens":0,"audio_tokens":0,"video_tokens":0},` +
				`"cost_details":{"upstream_inference_cost":0.000013},"completion_tokens_details":{"reasoning_tokens":0}}}`,
			usage: llm.Usage{Input: 8, Output: 1}, pico: 13_000_000},
		{name: "OpenRouter's searches", path: chatPath,
			body: `{"model":"m","service_tier":"priority","choices":[{"index":0,"message":{"content":"answer"}}],` +
				`"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"cost":0.0012,"is_byok":true,` +
				`"cost_details":{"upstream_inference_cost":0.001},"server_tool_use_details":{"tool_calls_requested":2,` +
				`"tool_calls_executed":1,"web_search_requests":1},"prompt_tokens_details":{"cached_tokens":4,` +
				`"cache_write_tokens":3,"audio_tokens":2},"completion_tokens_details":{"reasoning_tokens":2,"audio_tokens":1}}}`,
			usage: llm.Usage{Input: 1, CacheRead: 4, CacheWrite: 3, AudioIn: 2, Output: 4, AudioOut: 1, Reasoning: 2},
			units: map[string]int64{"web_search": 1}, pico: 2_200_000_000},
		{name: "OpenRouter's messages", path: messagesPath,
			body: sseOf(`{"type":"message_start","message":{"usage":{"input_tokens":1}}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":22,"output_tokens":7,`+
					`"cost":0.000114,"is_byok":false,"cost_details":{"upstream_inference_cost":0.000114}}}`,
				`{"type":"message_stop"}`),
			usage: llm.Usage{Input: 22, Output: 7}, pico: 114_000_000},
		{name: "QwenCloud's messages, whose first count has no cache", path: messagesPath,
			body: sseOf(`{"type":"message_start","message":{"id":"msg_1","model":"qwen3.7-plus","content":[],`+
				`"usage":{"input_tokens":8834,"output_tokens":0}}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":18,`+
					`"output_tokens":426,"cache_creation_input_tokens":0,"cache_read_input_tokens":8831,`+
					`"cache_creation":{"ephemeral_5m_input_tokens":0}}}`, `{"type":"message_stop"}`),
			usage: llm.Usage{Input: 18, CacheRead: 8831, Output: 426}},
		{name: "a relay of messages that counts in its last event alone", path: messagesPath,
			body: sseOf(`{"type":"message_start","message":{"id":"msg_1","model":"m"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
				`{"type":"message_delta","usage":{"input_tokens":4522,"cache_creation_input_tokens":4511,"output_tokens":5}}`,
				`{"type":"message_stop"}`),
			usage: llm.Usage{Input: 4522, CacheWrite: 4511, Output: 5}},
		{name: "Unsloth, which counts Claude's cache in neither prompt nor total", path: chatPath,
			body: sseOf(`{"choices":[{"index":0,"delta":{"content":"Hello"}}]}`,
				`{"id":"chatcmpl-anthropic","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":8,`+
					`"completion_tokens":862,"total_tokens":870,"prompt_tokens_details":{"cached_tokens":18901},`+
					`"cache_creation_input_tokens":1367,"cache_read_input_tokens":18901}}`, `[DONE]`),
			usage: llm.Usage{Input: 8, CacheRead: 18901, CacheWrite: 1367, Output: 862}},
		{name: "TensorX, whose last choice is empty", path: chatPath,
			body: sseOf(`{"choices":[{"index":0,"delta":{"content":"OK"}}]}`,
				`{"id": "ffd2", "created": 1786540743, "model": "m", "object": "chat.completion.chunk", `+
					`"choices": [{"index": 0, "delta": {}}], "usage": {"completion_tokens": 2, "prompt_tokens": 16111, `+
					`"total_tokens": 16113, "completion_tokens_details": {"reasoning_tokens": 0}, `+
					`"prompt_tokens_details": {"cached_tokens": 15872}}}`, `[DONE]`),
			usage: llm.Usage{Input: 239, CacheRead: 15872, Output: 2}},
		{name: "a gateway that sends a count before the answer", path: chatPath,
			body: sseOf(`{"choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":4,"total_tokens":1204}}`,
				`{"choices":[{"index":0,"delta":{"content":"Hello"}}]}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`,
				`{"choices":[],"usage":{"prompt_tokens":1200,"completion_tokens":252,"total_tokens":1452}}`, `[DONE]`),
			usage: llm.Usage{Input: 1200, Output: 252}},
		{name: "llama.cpp without a usage", path: chatPath,
			body: sseOf(`{"choices":[{"finish_reason":null,"index":0,"delta":{"reasoning_content":" it"}}],"timings":`+
				`{"cache_n":7,"prompt_n":10,"prompt_ms":251.51,"predicted_n":28,"draft_n":30,"draft_n_accepted":12}}`,
				`{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"timings":{"cache_n":7,"prompt_n":10,`+
					`"predicted_n":29,"predicted_ms":434.557,"draft_n":32,"draft_n_accepted":12}}`, `[DONE]`),
			usage: llm.Usage{Input: 10, CacheRead: 7, Output: 29}},
		{name: "Gemini, which lowers the prompt in its last event", path: gemini,
			body: sseOf(`{"candidates":[{"content":{"parts":[{"text":"Hello"}]}}],"usageMetadata":{"promptTokenCount":2,`+
				`"totalTokenCount":2}}`, `{"candidates":[{"content":{"parts":[{"text":"! How can"}]}}],"usageMetadata":{`+
				`"promptTokenCount":2,"totalTokenCount":2}}`,
				`{"candidates":[{"content":{"parts":[{"text":" I help?"}]},"finishReason":"STOP"}],"usageMetadata":{`+
					`"promptTokenCount":1,"candidatesTokenCount":10,"totalTokenCount":11}}`),
			usage: llm.Usage{Input: 1, Output: 10}},
		{name: "OpenRouter's limit on free models, with status 200", path: chatPath, outcome: llm.OutcomeFailed,
			body: `data: {"error":{"message":"Rate limit exceeded: free-models-per-day","code":429,"metadata":{"headers":` +
				`{"X-RateLimit-Limit":"200","X-RateLimit-Remaining":"0","X-RateLimit-Reset":"1743292800000"},` +
				`"provider_name":"Google AI Studio"}},"user_id":"user_1"}` + "\n\n"},
		{name: "OpenRouter's error of an upstream, before any text", path: chatPath, outcome: llm.OutcomeFailed,
			body: ": OPENROUTER PROCESSING\n\n" + sseOf(`{"id":"gen-1","object":"chat.completion.chunk","model":"m",`+
				`"provider":"Nvidia","choices":[],"error":{"code":502,"message":"Worker local total request limit reached`+
				` (33/32)","metadata":{"error_type":"provider_unavailable"}}}`, `[DONE]`)},
		{name: "Claude on Bedrock's Converse, with a cache", path: "/model/m/converse",
			body: `{"output":{"message":{"role":"assistant","content":[{"text":"Hello"}]}},"stopReason":"end_turn",` +
				`"usage":{"inputTokens":562,"outputTokens":12,"totalTokens":3633,"cacheReadInputTokens":3059,` +
				`"cacheWriteInputTokens":0}}`,
			usage: llm.Usage{Input: 562, CacheRead: 3059, Output: 12}},
		{name: "thoughts of Gemini in a chat without output", path: chatPath,
			body: `{"choices":[{"message":{"content":""}}],"usage":{"completion_tokens":0,"total_tokens":81,` +
				`"prompt_tokens":21,"completion_tokens_details":{"reasoning_tokens":60}}}`,
			usage: llm.Usage{Input: 21, Output: 60, Reasoning: 60}},
		{name: "a usage of zeros before the true one", path: chatPath,
			body: sseOf(`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}}`,
				`{"choices":[],"usage":{"prompt_tokens":39320,"completion_tokens":26,"total_tokens":39346,`+
					`"prompt_tokens_details":{"cached_tokens":33280}}}`, `[DONE]`),
			usage: llm.Usage{Input: 6040, CacheRead: 33280, Output: 26}},
		{name: "GLM, every other usage null", path: chatPath,
			body: sseOf(`{"code":0,"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":null,"content":"x"}}],"usage":null}`,
				`{"code":0,"choices":[],"model":"glm-5","usage":{"completion_tokens":133,"prompt_tokens":113,`+
					`"total_tokens":246,"prompt_tokens_details":{"cached_tokens":0}}}`, `[DONE]`),
			usage: llm.Usage{Input: 113, Output: 133}},
		{name: "Gemini with a PDF", path: gemini,
			body: `{"candidates":[{"content":{"parts":[{"text":"VERDICT"}]},"finishReason":"STOP"}],"usageMetadata":{` +
				`"candidatesTokenCount":363,"promptTokenCount":8947,"promptTokensDetails":[{"modality":"IMAGE",` +
				`"tokenCount":8840},{"modality":"TEXT","tokenCount":107}],"serviceTier":"standard",` +
				`"thoughtsTokenCount":1510,"totalTokenCount":10820}}`,
			usage: llm.Usage{Input: 107, ImageIn: 8840, Output: 1873, Reasoning: 1510}},
		{name: "Gemini with a last event of the prompt alone", path: gemini,
			body: sseOf(`{"candidates":[{"content":{"parts":[{"text":"hi"}]}}],"usageMetadata":{"promptTokenCount":1000,`+
				`"candidatesTokenCount":300,"thoughtsTokenCount":200,"cachedContentTokenCount":400}}`,
				`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":1000}}`),
			usage: llm.Usage{Input: 600, CacheRead: 400, Output: 500, Reasoning: 200}},
		{name: "Anthropic's search, whose input grows", path: messagesPath,
			body: sseOf(`{"type":"message_start","message":{"usage":{"input_tokens":2679,`+
				`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":3}}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":10682,`+
					`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":510,`+
					`"server_tool_use":{"web_search_requests":1}}}`, `{"type":"message_stop"}`),
			usage: llm.Usage{Input: 10682, Output: 510}, units: map[string]int64{"web_search": 1}},
		{name: "Anthropic's writes of an hour with one iteration", path: messagesPath,
			body: `{"content":[{"type":"text","text":"ok"}],"usage":{"input_tokens":3880,"cache_creation_input_tokens":42741,` +
				`"cache_read_input_tokens":214985,"output_tokens":4003,"server_tool_use":{"web_search_requests":0,` +
				`"web_fetch_requests":0},"service_tier":"standard","cache_creation":{"ephemeral_1h_input_tokens":42741,` +
				`"ephemeral_5m_input_tokens":0},"inference_geo":"","iterations":[{"input_tokens":1,"output_tokens":481,` +
				`"cache_read_input_tokens":49137,"cache_creation_input_tokens":3212,"type":"message"}],"speed":"standard"}}`,
			usage: llm.Usage{Input: 3880, CacheRead: 214985, CacheWriteLong: 42741, Output: 4003}},
		{name: "CometAPI's messages, whose input stays 0", path: messagesPath,
			body: sseOf(`{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}`,
				`{"type":"content_block_delta","delta":{"type":"text_delta","text":"ok"}}`,
				`{"type":"message_delta","usage":{"output_tokens":40}}`, `{"type":"message_stop"}`),
			usage: llm.Usage{Input: 2, Output: 40}, outcome: llm.OutcomeUnreported},
		{name: "a call of a function with a usage of zeros", path: responsesPath,
			body: `{"output":[{"type":"function_call","name":"f","arguments":"{}"}],"usage":{"input_tokens":0,` +
				`"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"total_tokens":0}}`,
			usage: llm.Usage{Input: 2, Output: 50}, outcome: llm.OutcomeUnreported},
		{name: "a compaction", path: responsesPath + "/compact",
			body: `{"object":"response.compaction","output":[{"type":"compaction","encrypted_content":"x"}],` +
				`"usage":{"input_tokens":139,"input_tokens_details":{"cached_tokens":39},"output_tokens":438,` +
				`"output_tokens_details":{"reasoning_tokens":64},"total_tokens":577}}`,
			usage: llm.Usage{Input: 100, CacheRead: 39, Output: 438, Reasoning: 64}},
		{name: "Cohere, which bills less than it reads", path: "/v2/chat",
			body: `{"finish_reason":"MAX_TOKENS","message":{"content":[{"text":"The ocean,","type":"text"}]},"usage":{` +
				`"billed_units":{"input_tokens":11,"output_tokens":3},"cached_tokens":448,` +
				`"tokens":{"input_tokens":506,"output_tokens":4}}}`,
			usage: llm.Usage{Input: 11, Output: 3}},
		{name: "Cohere's call of a tool", path: "/v2/chat",
			body: sseOf(`{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"{}"}}}}}`,
				`{"type":"message-end","delta":{"finish_reason":"TOOL_CALL","usage":{"billed_units":{"input_tokens":50,`+
					`"output_tokens":26},"tokens":{"input_tokens":793,"output_tokens":61},"cached_tokens":176}}}`),
			usage: llm.Usage{Input: 50, Output: 26}},
		{name: "SiliconFlow's rerank", path: "/v1/rerank",
			body:  `{"id":"x","results":[],"meta":{"tokens":{"input_tokens":255,"output_tokens":0,"total_tokens":255}}}`,
			usage: llm.Usage{Input: 255}},
		{name: "Jina's rerank", path: "/v1/rerank",
			body: `{"model":"jina-reranker-v2-base-multilingual","usage":{"total_tokens":815,"prompt_tokens":815},` +
				`"results":[{"index":0,"document":{"text":"Organic skincare"},"relevance_score":0.8895311}]}`,
			usage: llm.Usage{Input: 815}},
		{name: "Groq's verbose transcription", path: "/openai/v1/audio/transcriptions",
			body: `{"task":"transcribe","language":"english","duration":12.5,"text":"Hello there.","segments":[` +
				`{"id":0,"start":0,"end":1.2,"text":"Hello there."}],"x_groq":{"id":"req_1"}}`,
			units: map[string]int64{"audio_ms": 12500}},
		{name: "a transcription with a duration and a usage of tokens", path: "/v1/audio/transcriptions",
			body: `{"task":"transcribe","duration":27.4,"text":"Hello","segments":[],"usage":{"type":"tokens",` +
				`"input_tokens":14,"input_token_details":{"text_tokens":0,"audio_tokens":14},"output_tokens":45,"total_tokens":59}}`,
			usage: llm.Usage{AudioIn: 14, Output: 45}},
		{name: "Whisper, which bills the seconds begun", path: "/v1/audio/transcriptions",
			body: `{"task":"transcribe","language":"english","text":"Hello","usage":{"type":"duration","seconds":9},` +
				`"duration":8.470000267028809}`,
			units: map[string]int64{"audio_ms": 9000}},
		{name: "Mistral's transcription", path: "/v1/audio/transcriptions",
			body: sseOf(`{"type":"transcription.language","audio_language":"en"}`,
				`{"type":"transcription.text.delta","text":"Hello, "}`,
				`{"type":"transcription.done","text":"Hello, Ruby.","language":"en","usage":{"prompt_tokens":8,`+
					`"completion_tokens":4,"prompt_audio_seconds":3}}`),
			usage: llm.Usage{Input: 8, Output: 4}, units: map[string]int64{"audio_ms": 3000}},
		{name: "xAI's old search", path: chatPath,
			body: `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":20,"completion_tokens":5,` +
				`"total_tokens":25,"num_sources_used":4,"prompt_audio_seconds":null}}`,
			usage: llm.Usage{Input: 20, Output: 5}, units: map[string]int64{"source": 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, core.UnitTokens, 1_000_000, nil)
			r.answer = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, c.body) }
			read(t, r.post(c.path, `{"model":"m","max_tokens":50,"max_output_tokens":50,"messages":[{"content":"abcdefgh"}],`+
				`"query":"abcdefgh"}`))
			got := r.want(c.outcome, c.usage, c.usage.Total())
			if !maps.Equal(got.Units, c.units) || got.Stated.Pico != c.pico {
				t.Errorf("%v, %+v", got.Units, got.Stated)
			}
		})
	}
}
