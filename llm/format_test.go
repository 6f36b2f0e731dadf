package llm_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/llm"
)

func TestFormatOf(t *testing.T) {
	for _, c := range []struct {
		method, path, name string
		want               llm.Format
		ok                 bool
	}{
		{"POST", "/v1/chat/completions", "openai-chat", llm.FormatOpenAIChat, true},
		{"POST", "/v1/responses", "openai-responses", llm.FormatOpenAIResponses, true},
		{"POST", "/v1/messages", "anthropic-messages", llm.FormatAnthropicMessages, true},
		{"GET", "/v1/messages", "unknown", llm.Format{}, false},
	} {
		got, ok := llm.FormatOf(httptest.NewRequest(c.method, c.path, http.NoBody))
		if got != c.want || ok != c.ok || got.String() != c.name {
			t.Errorf("%s %s: %v, %v", c.method, c.path, got, ok)
		}
	}
}
