// Package wire reads and writes the wire formats of language models. It reads a request as a
// Request and a response as a Response, which are the same for every format, and writes errors as
// the server of a format does.
package wire

import (
	"net/http"
	"strconv"
	"strings"
)

// Format is the wire format of a request and of its response.
type Format uint8

const (
	// OpenAIChat is OpenAI's chat completions, which most other servers offer too.
	OpenAIChat Format = iota
	// OpenAIResponses is OpenAI's responses.
	OpenAIResponses
	// AnthropicMessages is Anthropic's messages.
	AnthropicMessages
)

// Formats is the number of formats.
const Formats = int(AnthropicMessages) + 1

// String returns a name such as openai-chat.
func (f Format) String() string {
	switch f {
	case OpenAIChat:
		return "openai-chat"
	case OpenAIResponses:
		return "openai-responses"
	case AnthropicMessages:
		return "anthropic-messages"
	}
	return "Format(" + strconv.Itoa(int(f)) + ")"
}

// FormatOf derives the format of a POST from the end of its path: /chat/completions, /responses or
// /messages. It ignores case and trailing slashes, as some servers do. It reports false for any
// other request.
func FormatOf(r *http.Request) (Format, bool) {
	if r.Method != http.MethodPost || r.URL == nil {
		return 0, false
	}
	switch path := strings.TrimRight(strings.ToLower(r.URL.Path), "/"); {
	case strings.HasSuffix(path, "/chat/completions"):
		return OpenAIChat, true
	case strings.HasSuffix(path, "/responses"):
		return OpenAIResponses, true
	case strings.HasSuffix(path, "/messages"):
		return AnthropicMessages, true
	}
	return 0, false
}
