package provider

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Request is what the provider reads of a request: of its JSON body, or of its headers X-Model and
// X-Request-Id.
type Request struct {
	ID        string
	Model     string `json:"model"`
	MaxTokens int64  `json:"max_tokens"`
	Stream    bool   `json:"stream"`
	Bytes     int64  // of the body
}

const maxBody = 1 << 20

func read(r *http.Request) Request {
	var q Request
	body, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	_ = json.Unmarshal(body, &q) // any body is fine
	q.Bytes = int64(len(body))
	q.ID = r.Header.Get("X-Request-Id")
	if q.Model == "" {
		q.Model = r.Header.Get("X-Model")
	}
	return q
}

// answer writes a response: a chat of Anthropic's under a path that ends in /messages, and otherwise
// one of OpenAI's.
func answer(
	w http.ResponseWriter, r *http.Request, q Request, prompt, output int64, took time.Duration,
) {
	head, rest := openai(q, prompt, output)
	if strings.HasSuffix(r.URL.Path, "/messages") {
		head, rest = anthropic(q, prompt, output)
	}
	kind := "application/json"
	if q.Stream {
		kind = "text/event-stream"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, head)
	if took > 0 {
		_ = http.NewResponseController(w).Flush()
		timer := time.NewTimer(took)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	_, _ = io.WriteString(w, rest)
}

func openai(q Request, prompt, output int64) (head, rest string) {
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`,
		prompt, output, prompt+output)
	if !q.Stream {
		return fmt.Sprintf(`{"id":"1","object":"chat.completion","model":%q,`, q.Model),
			`"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},` +
				`"finish_reason":"stop"}],"usage":` + usage + "}"
	}
	chunk := func(rest string) string {
		return fmt.Sprintf("data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"model\":%q,%s}\n\n",
			q.Model, rest)
	}
	return chunk(`"choices":[{"index":0,"delta":{"role":"assistant","content":"hello"}}]`),
		chunk(`"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`) +
			chunk(`"choices":[],"usage":`+usage) + "data: [DONE]\n\n"
}

func anthropic(q Request, prompt, output int64) (head, rest string) {
	message := fmt.Sprintf(`"id":"1","type":"message","role":"assistant","model":%q`, q.Model)
	if !q.Stream {
		return "{" + message + ",", fmt.Sprintf(`"content":[{"type":"text","text":"hello"}],`+
			`"stop_reason":"end_turn","usage":{"input_tokens":%d,"output_tokens":%d}}`, prompt, output)
	}
	event := func(name, format string, args ...any) string {
		return fmt.Sprintf("event: %s\ndata: {\"type\":%q,%s}\n\n", name, name, fmt.Sprintf(format, args...))
	}
	head = event("message_start", `"message":{%s,"content":[],"usage":{"input_tokens":%d,"output_tokens":1}}`,
		message, prompt) +
		event("content_block_start", `"index":0,"content_block":{"type":"text","text":""}`) +
		event("content_block_delta", `"index":0,"delta":{"type":"text_delta","text":"hello"}`)
	return head, event("content_block_stop", `"index":0`) +
		event("message_delta", `"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}`, output) +
		event("message_stop", `"ignored":0`)
}
