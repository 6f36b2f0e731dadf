package wire

// CohereChat is Cohere's chat. It is billed by billed_units: tokens of a preamble are free.
var CohereChat = formatOf(Table{
	Name:   "cohere-chat",
	Routes: []Route{{Path: "/v2/chat"}},
	Request: map[string]string{
		"model": "model", "stream": "stream", "max_output": "max_tokens",
		"text": "messages.** documents.**",
		"json": "tools response_format",
		"file": "messages[].content[].{image_url,image_url.url}",
	},
	Response: with(billedUnits, map[string]string{
		"type": "type",
		"text": "message.content[].{text,thinking} delta.message.content.{text,thinking} " +
			"{message,delta.message}.{tool_plan,tool_calls[].function.arguments} " +
			"delta.message.tool_calls.function.arguments",
	}),
	Events: map[string]eventKind{"message-end": endEvent},
	Errors: ErrorsCohere,
})

// CohereRerank is Cohere's rerank, which others offer too. It is billed by the search.
var CohereRerank = formatOf(Table{
	Name:   "cohere-rerank",
	Routes: []Route{{Path: "/rerank"}},
	Request: map[string]string{
		"model": "model", "text": "query documents.** texts.**",
	},
	Response: also(billedUnits, map[string]string{"input_else": "usage.{prompt_tokens,total_tokens}"}),
	OneSided: true,
	Unit:     "rerank_search",
	NoOutput: true,
	Errors:   ErrorsCohere,
})

const (
	billedPlaces = "{usage,delta.usage,meta}.billed_units"
	readPlaces   = "{usage,delta.usage,meta}.tokens"
)

// billedUnits has what Cohere bills. Beside it stands what the model has read, which counts for
// servers that say nothing else.
var billedUnits = map[string]string{
	"error":               "error delta.error",
	"input_else":          readPlaces + ".input_tokens",
	"output_else":         readPlaces + ".output_tokens",
	"input":               billedPlaces + ".input_tokens",
	"output":              billedPlaces + ".output_tokens",
	"input_beside":        billedPlaces + ".image_tokens",
	"unit:rerank_search":  billedPlaces + ".search_units",
	"unit:classification": billedPlaces + ".classifications",
	"unnamed":             "{usage,delta.usage,meta}.**",
	"named":               "{usage,delta.usage}.cached_tokens " + readPlaces + ".{reasoning_tokens,image_tokens}",
}
