package wire_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/llm/internal/wire"
)

func TestTotalSaturates(t *testing.T) {
	for _, c := range []struct {
		usage wire.Usage
		want  int64
	}{
		{wire.Usage{}, 0},
		{wire.Usage{Input: 1, CacheRead: 2, CacheWrite: 3, Output: 4}, 10},
		{wire.Usage{Input: -5, Output: 4}, 4},
		{wire.Usage{Input: math.MaxInt64, Output: 1}, math.MaxInt64},
		{wire.Usage{Input: 1, CacheRead: math.MaxInt64 - 1}, math.MaxInt64},
	} {
		if got := c.usage.Total(); got != c.want {
			t.Errorf("%+v: %d, want %d", c.usage, got, c.want)
		}
	}
}

func TestTokensOfNumbers(t *testing.T) {
	for _, c := range []struct {
		number string
		want   int64
		ok     bool
	}{
		{"0", 0, true}, {"17", 17, true}, {"12.0", 12, true}, {"1e3", 1000, true},
		{"1.5e1", 15, true},
		{"1000000000", wire.MaxTokens, true}, {"1000000001", 0, false}, {"1e30", 0, false},
		{"99999999999999999999999999", 0, false}, {"1e400", 0, false},
		{"-1", 0, false}, {"-0", 0, false}, {"1.5", 0, false}, {"-1e400", 0, false}, {"", 0, false},
	} {
		tap := newTap(wire.OpenAIChat, "application/json", "", false)
		send(t, tap, [][]byte{[]byte(`{"usage":{"completion_tokens":1,"prompt_tokens":` + c.number + `}}`)})
		if got := tap.Response(); got.Usage.Input != c.want || got.InputKnown != (c.want > 0) ||
			c.number != "" && got.Known != c.ok {
			t.Errorf("%q: %+v, want %d, %v", c.number, got, c.want, c.ok)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for _, c := range []struct {
		method, path string
		want         *wire.Format
	}{
		{"POST", "/v1/chat/completions", wire.OpenAIChat},
		{"POST", "/openai/deployments/x/chat/completions?api-version=1", wire.OpenAIChat},
		{"POST", "/v1/projects/p/locations/l/endpoints/openapi/chat/completions", wire.OpenAIChat},
		{"POST", "/v1/responses", wire.OpenAIResponses},
		{"POST", "/v1/messages", wire.AnthropicMessages},
		{"GET", "/v1/responses", nil},
		{"POST", "/v1/messages/count_tokens", nil},
		{"POST", "/v1/messages/batches", nil},
		{"POST", "/v1/completions", wire.OpenAICompletions},
		{"POST", "/v1/responses/", wire.OpenAIResponses},
		{"POST", "/v1/Chat/Completions//", wire.OpenAIChat},
		{"POST", "/v1/xmessages", nil},
		{"POST", "/v1/chat/completion%73", wire.OpenAIChat},
		{"POST", "/v1/chat/completions/.", wire.OpenAIChat},
		{"POST", "/v1/chat//completions", wire.OpenAIChat},
		{"POST", "/v1/chat/completions/x/..", wire.OpenAIChat},
		{"POST", "/v1/chat/completions/x/%2e%2E/", wire.OpenAIChat},
		{"POST", "/../../v1/messages", wire.AnthropicMessages},
		{"POST", "/v1/chat%2Fcompletions", wire.OpenAIChat},
		{"POST", "/v1%2fmessages%2F", wire.AnthropicMessages},
		{"POST", "/v1/messages%2Fcount_tokens", nil},
		{"POST", "/v1beta/models/g%3AgenerateContent", wire.GeminiGenerate},
		{"POST", "/v1beta/models/g%3A%67enerateContent", wire.GeminiGenerate},
		{"POST", "/v1/projects/p/locations/l/endpoints/7:streamGenerateContent", wire.GeminiGenerate},
		{"POST", "/v1/responses/compact", wire.OpenAIResponses},
		{"POST", "/v1/publishers/anthropic/models/claude:rawPredict", wire.AnthropicMessages},
		{"POST", "/v1/publishers/anthropic/models/count-tokens:rawPredict", nil},
		{"POST", "/v1/publishers/other/models/x:rawPredict", nil},
		{"POST", "/v1beta/models/gemini-2.5-pro:generateContent", wire.GeminiGenerate},
		{"POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", wire.GeminiGenerate},
		{"POST", "/v1beta/models/:generateContent", nil},
		{"POST", "/v1beta/models/gemini-2.5-pro:countTokens", nil},
		{"POST", "/model/arn%3Aaws%3Abedrock%3Aus%3A1%3Aprofile%2Fx/converse-stream", wire.BedrockConverse},
		{"POST", "/model/a.b-v1:0/invoke", wire.BedrockInvoke},
		{"POST", "/model//invoke", nil},
		{"POST", "/api/chat", wire.Ollama},
		{"POST", "/v2/chat", wire.CohereChat},
		{"POST", "/v1/rerank", wire.CohereRerank},
		{"POST", "/v2/embed", nil},
		{"POST", "/embed", nil},
		{"POST", "/api/embed", wire.OllamaEmbed},
		{"POST", "/api/embeddings", wire.OllamaEmbed},
		{"POST", "/v1/embeddings", wire.OpenAIEmbeddings},
		{"POST", "/openai/deployments/x/embeddings", wire.OpenAIEmbeddings},
		{"POST", "/v1/audio/transcriptions", wire.OpenAITranscriptions},
		{"POST", "/v1/chat/completions;x=1", wire.OpenAIChat},
		{"POST", "/v1;a/chat;b=c/completions;x=1;y", wire.OpenAIChat},
		{"POST", "/v1/chat/completions%20", wire.OpenAIChat},
		{"POST", "/v1/messages%09/%20", wire.AnthropicMessages},
		{"POST", "/v1/fim/completions", wire.OpenAICompletions},
		{"POST", "/v1/threads/t_1/messages", nil},
		{"POST", "/v1/threads/messages", wire.AnthropicMessages},
		{"POST", "/v1/images/edits", wire.OpenAIImages},
	} {
		got := wire.FormatOf(httptest.NewRequest(c.method, c.path, http.NoBody), wire.Formats)
		if got != c.want {
			t.Errorf("%s %s: %v", c.method, c.path, got)
		}
	}
}

func TestModelInThePath(t *testing.T) {
	for _, c := range []struct {
		path, body, model string
		stream            bool
	}{
		{"/openai/deployments/gpt-5/chat/completions", `{"model":"m"}`, "gpt-5", false},
		{"/openai/deployments/gpt-5/chat/completions", `{"stream":true}`, "gpt-5", true},
		{"/model/arn%3Aaws%3Aprofile%2Fx/converse", `{}`, "arn:aws:profile/x", false},
		{"/model/us.a.b-v1:0/converse-stream", `{}`, "us.a.b-v1:0", true},
		{"/v1beta/models/g:streamGenerateContent", `{}`, "g", true},
		{"/v1beta/models/g%2Fh%3Ax%3AstreamGenerateContent", `{}`, "g/h:x", true},
		{"/openai%2Fdeployments%2Fgpt-5%2Fchat%2Fcompletions", `{"model":"m"}`, "gpt-5", false},
		{"/model/%61%252F/x/..//converse", `{}`, "a%2F", false},
		{"/model/%ff/converse", `{}`, "", false},
		{"/model/" + strings.Repeat("x", 257) + "/converse", `{}`, "", false},
	} {
		r := httptest.NewRequest(http.MethodPost, c.path, nil)
		q, err := wire.ParseRequest(wire.FormatOf(r, wire.Formats), r, []byte(c.body))
		if q.Model != c.model || q.Stream != c.stream || (err != nil) != (c.model == "") {
			t.Errorf("%s: %+v, %v", c.path, q, err)
		}
	}
}
