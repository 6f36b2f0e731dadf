package llm

import (
	"net/http"

	"github.com/headgate/headgate/llm/internal/wire"
)

// Format is the wire format of a request and of its response. The zero value is no format. Formats
// can be compared.
type Format struct{ wire *wire.Format }

// The formats that a Meter knows. docs/llm-formats.md says what it reads of each.
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
	// FormatOpenAIImages is OpenAI's generations, edits and variations of images.
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
	// FormatCohereEmbed is Cohere's embed.
	FormatCohereEmbed = Format{wire.CohereEmbed}
	// FormatOllama is Ollama's chat and generate.
	FormatOllama = Format{wire.Ollama}
)

// FormatConfig describes a format by tables of paths, for servers that a Meter does not know.
//
// Request, Response and Headers map what a value means to paths of JSON, separated by spaces. A
// path names members, as in usage.input. [] stands for the elements of an array, {a,b} for either,
// and ** at the end for everything below. docs/llm-formats.md lists the meanings.
type FormatConfig struct {
	// Name is what String returns. It is required.
	Name string
	// Routes are the ends of the paths. At least one is required.
	Routes []Route
	// Request has the paths of a request, such as {"model": "model", "text": "prompt"}.
	Request map[string]string
	// Response has the paths of a response that is one document, of each event of a stream, and of
	// each element of an array, such as {"input": "usage.in", "output": "usage.out", "text":
	// "text"}.
	Response map[string]string
	// Headers has the names of headers of the response that state numbers.
	Headers map[string]string
	// Events maps the type of an event to what it means: end, fail, error, silent or item.
	Events map[string]string
	// Streams says that a request asks for a stream unless it says otherwise.
	Streams bool
	// Lines says that a stream is one JSON document a line.
	Lines bool
	// Beside says that the input does not include cached tokens.
	Beside bool
	// OneSided says that a usage need not state both input and output.
	OneSided bool
	// NoOutput says that a response has no tokens of output, so that none are estimated.
	NoOutput bool
	// FileTokens is the number of tokens that the estimate counts for each file.
	FileTokens int64
	// Errors is a format whose servers report errors as this one's do. The zero value is
	// FormatOpenAIChat.
	Errors Format
}

// Route is the end of a path, such as /models/*:generate. A * stands for the name of the model,
// which the body need not have then.
type Route struct {
	Path string
	// Stream says that the response is a stream.
	Stream bool
}

// NewFormat returns a format for Config.Formats, or the first fault of its description.
func NewFormat(cfg FormatConfig) (Format, error) {
	t := wire.Table{
		Name: cfg.Name, Request: cfg.Request, Response: cfg.Response, Headers: cfg.Headers,
		Events: cfg.Events, Streams: cfg.Streams, Lines: cfg.Lines, Beside: cfg.Beside,
		OneSided: cfg.OneSided, NoOutput: cfg.NoOutput, FileTokens: cfg.FileTokens,
	}
	for _, r := range cfg.Routes {
		t.Routes = append(t.Routes, wire.Route(r))
	}
	if cfg.Errors.wire != nil {
		t.Errors = cfg.Errors.wire.Errors()
	}
	f, err := wire.NewFormat(t)
	return Format{f}, err
}

// String returns a name such as openai-chat.
func (f Format) String() string {
	if f.wire == nil {
		return "unknown"
	}
	return f.wire.String()
}

// formatsOf returns further formats and those that a Meter knows.
func formatsOf(further []Format) []*wire.Format {
	var all []*wire.Format
	for _, f := range further {
		all = append(all, f.wire)
	}
	return append(all, wire.Formats...)
}

// FormatOf derives the format of a POST from the end of its path, such as /chat/completions. It
// ignores case and trailing slashes, as some servers do. It reports false for any other request,
// and for formats of Config.Formats.
func FormatOf(r *http.Request) (Format, bool) {
	f := wire.FormatOf(r, wire.Formats)
	return Format{f}, f != nil
}
