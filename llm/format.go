package llm

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/llm/internal/wire"
)

// Format is the wire format of a request and of its response. The zero value is no format. Formats
// can be compared.
type Format struct{ wire *wire.Format }

// The formats that a Meter knows. docs/reference/llm-formats.md says what it reads of each.
var (
	// FormatOpenAIChat is OpenAI's chat completions, which most other servers offer too.
	FormatOpenAIChat = Format{wire.OpenAIChat}
	// FormatOpenAIResponses is OpenAI's responses.
	FormatOpenAIResponses = Format{wire.OpenAIResponses}
	// FormatOpenAICompletions is OpenAI's legacy completions.
	FormatOpenAICompletions = Format{wire.OpenAICompletions}
	// FormatOpenAIEmbeddings is OpenAI's embeddings.
	FormatOpenAIEmbeddings = Format{wire.OpenAIEmbeddings}
	// FormatOpenAITranscriptions is OpenAI's transcriptions and translations of sound.
	FormatOpenAITranscriptions = Format{wire.OpenAITranscriptions}
	// FormatOpenAIImages is OpenAI's generations and edits of images.
	FormatOpenAIImages = Format{wire.OpenAIImages}
	// FormatAnthropicMessages is Anthropic's messages, also on Vertex.
	FormatAnthropicMessages = Format{wire.AnthropicMessages}
	// FormatGemini is Gemini's own format, also on Vertex.
	FormatGemini = Format{wire.GeminiGenerate}
	// FormatBedrockConverse is Bedrock's own format.
	FormatBedrockConverse = Format{wire.BedrockConverse}
	// FormatBedrockInvoke is a model's own format on Bedrock.
	FormatBedrockInvoke = Format{wire.BedrockInvoke}
	// FormatCohereChat is version 2 of Cohere's chat.
	FormatCohereChat = Format{wire.CohereChat}
	// FormatCohereRerank is Cohere's rerank.
	FormatCohereRerank = Format{wire.CohereRerank}
	// FormatOllama is Ollama's chat and generate.
	FormatOllama = Format{wire.Ollama}
	// FormatOllamaEmbed is Ollama's embeddings.
	FormatOllamaEmbed = Format{wire.OllamaEmbed}
)

// Route is a path under which a server speaks a format that a Meter knows, besides the paths of the
// format.
type Route struct {
	// Path is the end of the path, such as /acme/*/generate. It begins with a slash. A * stands for
	// the name of the model, which the body need not have then.
	Path string
	// Format is what the server speaks there. It is required.
	Format Format
	// Stream says that the response is a stream, whatever the body says.
	Stream bool
}

func (r *Route) check(at string, fault func(string, ...any)) {
	if !strings.HasPrefix(r.Path, "/") || r.Path == "/" {
		fault("%s.Path is %q: it must begin with a slash and name something", at, r.Path)
	}
	if r.Format.wire == nil {
		fault("%s.Format is missing", at)
	}
}

// String returns a name such as openai-chat.
func (f Format) String() string {
	if f.wire == nil {
		return "unknown"
	}
	return f.wire.String()
}

// routesOf returns further routes and those that a Meter knows.
func routesOf(further []Route) (all []wire.Route) {
	for _, r := range further {
		all = append(all, wire.Route{Path: r.Path, Format: r.Format.wire, Stream: r.Stream})
	}
	return append(all, wire.Routes...)
}

// FormatOf derives the format of a POST from the end of its path, such as /chat/completions. It
// ignores case and trailing slashes, as some servers do. It reports false for any other request,
// and for the paths of Config.Routes.
func FormatOf(r *http.Request) (Format, bool) {
	t, ok := wire.Find(r, wire.Routes)
	return Format{t.Format}, ok
}
