package llm

import (
	"net/http"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
)

// Format is the wire format of a request and of its response.
type Format uint8

const (
	// FormatOpenAIChat is OpenAI's chat completions, which most other servers offer too.
	FormatOpenAIChat = Format(wire.OpenAIChat)
	// FormatOpenAIResponses is OpenAI's responses.
	FormatOpenAIResponses = Format(wire.OpenAIResponses)
	// FormatAnthropicMessages is Anthropic's messages.
	FormatAnthropicMessages = Format(wire.AnthropicMessages)
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
