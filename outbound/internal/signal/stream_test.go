package signal

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Errors of providers inside streams that began well, and events that are none.
func TestErrorEvents(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		status       int // 0 for no refusal
		wait         time.Duration
		spent        bool
	}{
		// docs.anthropic.com/en/api/errors, 2026-11
		{"Anthropic, overloaded", "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n" +
			"event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n", 529, 0, false},
		{"Anthropic, rate", "event: error\r\ndata: {\"type\": \"error\", \"error\": {\"details\":null,\"type\":\"rate_limit_error\",\"message\":\"slow\"}}\r\n\r\n", 429, 0, false},
		// platform.openai.com/docs/api-reference/responses-streaming/error, 2026-11
		{"OpenAI, responses", "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"Please try again in 1.5s.\",\"param\":null}\n\n", 429, 1500 * time.Millisecond, false},
		{"OpenAI, failed", "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}}}\n\n", 429, 0, false},
		{"OpenAI, chat", "data: {\"id\":\"c\",\"choices\":[]}\n\ndata: {\"error\":{\"message\":\"m\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}\n\n", 429, 0, true},
		// cloud.google.com/apis/design/errors, 2026-11
		{"Gemini", "data: {\"error\": {\"code\": 429, \"status\": \"RESOURCE_EXHAUSTED\", \"details\": [{\"retryDelay\": \"12s\"}]}}\n\n", 429, 12 * time.Second, false},
		{"another error", "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\"}}\n\n", 0, 0, false},
		{"text of a model", "data: {\"delta\":\"{\\\"error\\\":{\\\"type\\\":\\\"overloaded_error\\\"}}\"}\n\n", 0, 0, false},
		{"no error", "data: {\"response\":{\"error\":null,\"type\":\"x\"}}\n\ndata: [DONE]\n\n", 0, 0, false},
		{"a long line", "data: {\"x\":\"" + strings.Repeat("x", maxLine) + "\"}\ndata: {\"error\":{\"code\":\"slow_down\"}}\n\n", 529, 0, false},
		{"a line that is too long", "data: {\"x\":\"" + strings.Repeat("x", maxLine) + "\",\"error\":{\"code\":\"slow_down\"}}\n\n", 0, 0, false},
	} {
		for _, size := range []int{1, 7, 1000} {
			var e Events
			var data []byte
			for rest := []byte(c.stream); len(rest) > 0 && data == nil; {
				n := min(size, len(rest))
				data = e.Find(rest[:n])
				rest = rest[n:]
			}
			status, s := ReadEvent(http.Header{}, data, time.Now())
			if !s.Refused && !s.Spent {
				status = 0
			}
			if status != c.status || s.Wait != c.wait || s.Spent != c.spent {
				t.Errorf("%s in pieces of %d: %d, %+v from %q", c.name, size, status, s, data)
			}
		}
	}
}
