package llm_test

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"

	"github.com/headgate/headgate/llm"
)

// stormOrder are the formats of the storm's streams.
var stormOrder = []llm.Format{
	llm.FormatOpenAIChat, llm.FormatOpenAIResponses, llm.FormatAnthropicMessages, llm.FormatGemini,
	llm.FormatBedrockConverse, llm.FormatCohereChat, llm.FormatOllama,
}

// stormFormats says how each of them is spelt.
var stormFormats = map[llm.Format]struct {
	path, contentType string
	tellsInput        bool   // at the beginning
	ask               string // with the cap on the output and the text of the prompt
	answer            func(*answer)
}{
	llm.FormatOpenAIChat: {
		path: "/v1/chat/completions", answer: chatAnswer,
		ask: `{"model":"m","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`,
	},
	llm.FormatOpenAIResponses: {
		path: "/v1/responses", answer: responsesAnswer,
		ask: `{"model":"m","stream":true,"max_output_tokens":%d,"input":[{"role":"user","content":"%s"}]}`,
	},
	llm.FormatAnthropicMessages: {
		path: "/v1/messages", answer: messagesAnswer, tellsInput: true,
		ask: `{"model":"m","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`,
	},
	llm.FormatGemini: {
		path: "/v1beta/models/m:streamGenerateContent", answer: geminiAnswer, tellsInput: true,
		ask: `{"generationConfig":{"maxOutputTokens":%d},"contents":[{"parts":[{"text":"%s"}]}]}`,
	},
	llm.FormatBedrockConverse: {
		path: "/model/m/converse-stream", answer: converseAnswer,
		contentType: "application/vnd.amazon.eventstream",
		ask:         `{"inferenceConfig":{"maxTokens":%d},"messages":[{"content":[{"text":"%s"}]}]}`,
	},
	llm.FormatCohereChat: {
		path: "/v2/chat", answer: cohereAnswer,
		ask: `{"model":"m","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":"%s"}]}`,
	},
	llm.FormatOllama: {
		path: "/api/chat", answer: ollamaAnswer, contentType: "application/x-ndjson",
		ask: `{"model":"m","options":{"num_predict":%d},"messages":[{"role":"user","content":"%s"}]}`,
	},
}

func (s *stream) path() string { return stormFormats[s.format].path }

// request returns the body of the request. stormEstimate estimates it as s.estimate.
func (s *stream) request() string {
	ask := stormFormats[s.format].ask
	bytes := int(4 * s.estimate.Input)
	if strings.Contains(ask, `"role":"user"`) {
		bytes -= len("user")
	}
	body := fmt.Sprintf(ask, s.estimate.Output, strings.Repeat("x", bytes))
	if s.format == llm.FormatOpenAIChat && s.asks {
		body = strings.Replace(body, `{`, `{"stream_options":{"include_usage":true},`, 1)
	}
	return body
}

// body returns the events that the server sends, and where each event with text ends. A chat that
// asks for it has a chunk with the usage.
func (s *stream) body(asks bool) ([]byte, []int) {
	a := answer{stream: s, asks: asks, tells: s.fate != unreported}
	stormFormats[s.format].answer(&a)
	return a.Bytes(), a.ends
}

// answer is a response of the storm.
type answer struct {
	*stream
	bytes.Buffer
	asks, tells bool
	ends        []int
}

func (a *answer) data(format string, args ...any) { fmt.Fprintf(a, "data: "+format+"\n\n", args...) }

func (a *answer) event(name, format string, args ...any) {
	fmt.Fprintf(a, "event: %s\n", name)
	a.data(`{"type":"%s",`+format+`}`, append([]any{name}, args...)...)
}

func (a *answer) frame(name, format string, args ...any) {
	var m eventstream.Message
	m.Headers.Set(":event-type", eventstream.StringValue(name))
	m.Payload = fmt.Appendf(nil, format, args...)
	if err := eventstream.NewEncoder().Encode(a, m); err != nil {
		panic(err)
	}
}

// say writes the events with text.
func (a *answer) say(event func()) {
	for range a.words {
		event()
		a.ends = append(a.ends, a.Len())
	}
}

// orNull returns an object of a usage, or null if the server tells none.
func (a *answer) orNull(format string, args ...any) string {
	if !a.tells {
		return "null"
	}
	return fmt.Sprintf(format, args...)
}

func chatAnswer(a *answer) {
	u := a.usage
	a.say(func() {
		a.data(`{"id":"c-%d","choices":[{"index":0,"delta":{"content":%s}}],"usage":null}`, a.id, stormWord)
	})
	a.data(`{"id":"c-%d","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}`, a.id)
	if a.asks && a.tells {
		a.data(`{"id":"c-%d","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d,`+
			`"prompt_tokens_details":{"cached_tokens":%d}}}`,
			a.id, u.Input+u.CacheRead, u.Output, u.CacheRead)
	}
	a.data("[DONE]")
}

func responsesAnswer(a *answer) {
	u := a.usage
	a.event("response.created", `"response":{"id":"r-%d","usage":null}`, a.id)
	a.say(func() { a.event("response.output_text.delta", `"delta":%s`, stormWord) })
	a.event("response.completed", `"response":{"id":"r-%d","usage":%s}`, a.id,
		a.orNull(`{"input_tokens":%d,"output_tokens":%d,"input_tokens_details":{"cached_tokens":%d}}`,
			u.Input+u.CacheRead, u.Output, u.CacheRead))
}

func messagesAnswer(a *answer) {
	u := a.usage
	a.event("message_start", `"message":{"id":"m-%d","usage":%s}`, a.id,
		a.orNull(`{"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
			`"output_tokens":1}`, u.Input, u.CacheRead, u.CacheWrite))
	a.event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`)
	a.say(func() {
		a.event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":%s}`, stormWord)
	})
	a.event("content_block_stop", `"index":0`)
	a.event("message_delta", `"delta":{"stop_reason":"end_turn"},"usage":%s`,
		a.orNull(`{"output_tokens":%d}`, u.Output))
	a.event("message_stop", `"x":0`)
}

// geminiAnswer is an array of documents.
func geminiAnswer(a *answer) {
	u := a.usage
	separator := "["
	a.say(func() {
		fmt.Fprintf(a, `%s{"candidates":[{"content":{"parts":[{"text":%s}]}}],"usageMetadata":%s}`, separator,
			stormWord, a.orNull(`{"promptTokenCount":%d,"cachedContentTokenCount":%d}`,
				u.Input+u.CacheRead, u.CacheRead))
		separator = ",\r\n"
	})
	fmt.Fprintf(a, `,{"responseId":"g-%d","candidates":[{"finishReason":"STOP"}],"usageMetadata":%s}]`, a.id,
		a.orNull(`{"promptTokenCount":%d,"candidatesTokenCount":%d}`, u.Input+u.CacheRead, u.Output))
}

func converseAnswer(a *answer) {
	u := a.usage
	a.frame("messageStart", `{"role":"assistant","x":%d}`, a.id)
	a.say(func() { a.frame("contentBlockDelta", `{"delta":{"text":%s}}`, stormWord) })
	a.frame("messageStop", `{"stopReason":"end_turn"}`)
	a.frame("metadata", `{"usage":%s}`, a.orNull(`{"inputTokens":%d,"cacheReadInputTokens":%d,`+
		`"cacheWriteInputTokens":%d,"outputTokens":%d,"totalTokens":%d}`,
		u.Input, u.CacheRead, u.CacheWrite, u.Output, u.Total()))
}

func cohereAnswer(a *answer) {
	a.event("message-start", `"id":"h-%d"`, a.id)
	a.say(func() {
		a.event("content-delta", `"delta":{"message":{"content":{"text":%s}}}`, stormWord)
	})
	a.event("message-end", `"delta":{"usage":%s}`,
		a.orNull(`{"billed_units":{"input_tokens":%d.0,"output_tokens":%d.0}}`, a.usage.Input, a.usage.Output))
}

func ollamaAnswer(a *answer) {
	a.say(func() { fmt.Fprintf(a, `{"message":{"content":%s},"done":false}`+"\n", stormWord) })
	counts := ""
	if a.tells {
		counts = fmt.Sprintf(`,"prompt_eval_count":%d,"eval_count":%d`, a.usage.Input, a.usage.Output)
	}
	fmt.Fprintf(a, `{"model":"o-%d","done":true%s}`+"\n", a.id, counts)
}
