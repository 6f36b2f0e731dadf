package signal

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// toolError is an item of a stream whose tool has failed, and no error of the provider.
const toolError = "event: response.output_item.done\ndata: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":" +
	"{\"type\":\"mcp_call\",\"status\":\"failed\",\"error\":{\"type\":\"http_error\",\"code\":\"rate_limit_exceeded\",\"message\":\"API rate limit exceeded\"}}}\n\n"

// findIn returns what the first refusal in a stream tells, which comes in pieces, or a status of 0.
func findIn(kind, stream string, size int) (status int, s Signal) {
	e := EventsOf(http.StatusOK, http.Header{"Content-Type": {kind}})
	for part := range slices.Chunk([]byte(stream), size) {
		if status, s = e.Find(part, time.Now()); s.Reason != None {
			return status, s
		}
	}
	return 0, s
}

// Errors of providers inside streams that began well, and events that are none.
func TestErrorEvents(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		status       int // 0 for no refusal
		wait         time.Duration
		spent        bool
	}{
		// docs.anthropic.com/en/api/errors, 2026-11
		{"Anthropic, rate", "event: error\r\ndata: {\"type\": \"error\", \"error\": {\"details\":null,\"type\":\"rate_limit_error\",\"message\":\"slow\"}}\r\n\r\n", 429, 0, false},
		// platform.openai.com/docs/api-reference/responses-streaming/error, 2026-11
		{"OpenAI, responses", "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"Please try again in 1.5s.\",\"param\":null}\n\n", 429, 1500 * time.Millisecond, false},
		{"OpenAI, chat", "data: {\"id\":\"c\",\"choices\":[]}\n\ndata: {\"error\":{\"message\":\"m\",\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\"}}\n\n", 429, 0, true},
		// cloud.google.com/apis/design/errors, 2026-11
		{"Gemini", "data: {\"error\": {\"code\": 429, \"status\": \"RESOURCE_EXHAUSTED\", \"details\": [{\"retryDelay\": \"12s\"}]}}\n\n", 429, 12 * time.Second, false},
		{"another error", "data: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\"}}\n\n", 0, 0, false},
		{"an error that is no object", "data: {\"error\":true,\"code\":429,\"message\":\"m\"}\n\n", 429, 0, false},
		{"elements of an array", "data: {\"response\":[\"type\",\"error\"],\"code\":\"rate_limit_exceeded\"}\n\n", 0, 0, false},
		{"text of a model", "data: {\"delta\":\"{\\\"error\\\":{\\\"type\\\":\\\"overloaded_error\\\"}}\"}\n\n", 0, 0, false},
		// platform.openai.com/docs/api-reference/responses-streaming/response/output_item/done, 2026-11
		{"a tool's error", toolError, 0, 0, false},
		{"after a tool's error", toolError + "data: {\"type\":\"response.failed\",\"response\":{\"output\":[{\"type\":\"mcp_call\",\"error\":{\"code\":\"m\"}}],\"error\":{\"code\":\"slow_down\"}}}\n\n", 529, 0, false},
		{"after another error", "data: {\"error\":{\"code\":\"invalid_prompt\"}}\n\ndata: {\"error\":{\"code\":\"slow_down\"}}\n\n", 529, 0, false},
		{"no error", "data: {\"response\":{\"error\":null,\"type\":\"x\"}}\n\ndata: [DONE]\n\n", 0, 0, false},
		{"a long line", "data: {\"x\":\"" + strings.Repeat("x", MaxBody) + "\"}\ndata: {\"error\":{\"code\":\"slow_down\"}}\n\n", 529, 0, false},
		// OpenAI's event quotes instructions and tools behind the error.
		{"an error early in a line that is too long", "data: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"error\":{\"code\":\"rate_limit_exceeded\"," +
			"\"message\":\"Please try again in 1.5s.\"},\"instructions\":\"" + strings.Repeat("x", MaxBody) + "\"}}\n\n", 429, 1500 * time.Millisecond, false},
		{"the same at the top", "data: {\"error\":{\"code\":\"slow_down\"},\"x\":\"" + strings.Repeat("x", MaxBody) + "\"}\n\n", 529, 0, false},
		{"a tool's error in a line that is too long", "data: {\"response\":{\"error\":null,\"output\":[{\"error\":{\"code\":\"slow_down\"}},\"" +
			strings.Repeat("x", MaxBody) + "\"]}}\n\n", 0, 0, false},
		{"an error behind an item that breaks off", "data: {\"response\":{\"output\":[{\"error\":{\"code\":\"slow_down\"}},\"" +
			strings.Repeat("x", MaxBody) + "\"],\"error\":{\"code\":\"slow_down\"}}}\n\n", 0, 0, false},
		{"an error in words", "data: {\"error\":\"Rate limit reached, 1 per day\",\"code\":429}\n\n", 429, 0, false},
		{"a line that is too long", "data: {\"x\":\"" + strings.Repeat("x", MaxBody) + "\",\"error\":{\"code\":\"slow_down\"}}\n\n", 0, 0, false},
	} {
		for _, size := range []int{1, 7, 1000} {
			status, s := findIn("text/event-stream; charset=utf-8", c.stream, size)
			if status != c.status || s.Wait != c.wait || (s.Reason == Spent) != c.spent {
				t.Errorf("%s in pieces of %d: %d, %+v", c.name, size, status, s)
			}
		}
	}
}

// An exception of Bedrock is a frame of its own, in a stream that began well.
func TestExceptionFrames(t *testing.T) {
	frame := func(headers ...string) string {
		var all, body bytes.Buffer
		for i := 0; i < len(headers); i += 2 {
			body.WriteByte(byte(len(headers[i])))
			body.WriteString(headers[i] + "\x07\x00" + string(rune(len(headers[i+1]))) + headers[i+1])
		}
		n := body.Len()
		body.WriteString(`{"message":":exception-type of a model"}`)
		_ = binary.Write(&all, binary.BigEndian, []uint32{uint32(body.Len() + 16), uint32(n), 1})
		return all.String() + body.String() + "crc "
	}
	ordinary := frame(":event-type", "contentBlockDelta", ":message-type", "event")
	for name, want := range map[string]int{
		"throttlingException": 429, "serviceUnavailableException": 529, "validationException": 0, "": 0,
		"validationException throttlingException": 429,
	} {
		stream := ordinary + ordinary
		for _, name := range strings.Fields(name) {
			stream += frame(":exception-type", name, ":message-type", "exception")
		}
		for _, size := range []int{1, 50, 10_000} {
			if status, s := findIn("application/vnd.amazon.eventstream", stream, size); status != want {
				t.Errorf("%q in pieces of %d: %d, %+v", name, size, status, s)
			}
		}
	}
	if EventsOf(http.StatusOK, http.Header{"Content-Type": {"application/json"}}) != nil {
		t.Error("a response that is no stream has events")
	}
}
