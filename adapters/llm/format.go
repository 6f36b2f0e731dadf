package llm

import (
	"net/http"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
)

// Format is the wire format of a request and of its response.
type Format uint8

const (
	// OpenAIChat is OpenAI's chat completions, which most other servers offer too.
	OpenAIChat = Format(wire.OpenAIChat)
	// OpenAIResponses is OpenAI's responses.
	OpenAIResponses = Format(wire.OpenAIResponses)
	// AnthropicMessages is Anthropic's messages.
	AnthropicMessages = Format(wire.AnthropicMessages)
)

// String returns a name such as openai-chat.
func (f Format) String() string { return wire.Format(f).String() }

// FormatOf derives the format of a POST from the end of its path: /chat/completions, /responses or
// /messages. It ignores case and trailing slashes, as some servers do. It reports false for any
// other request.
func FormatOf(r *http.Request) (Format, bool) {
	f, ok := wire.FormatOf(r)
	return Format(f), ok
}
