package wire

// Ollama is Ollama's chat and generate. A stream has one document a line, and a request asks for
// one unless it says otherwise.
var Ollama = formatOf(Table{
	Name:   "ollama-chat",
	Routes: []Route{{Path: "/api/chat"}, {Path: "/api/generate"}},
	Request: map[string]string{
		"model": "model", "stream": "stream", "max_output": "options.num_predict",
		"text": "messages.** prompt system suffix",
		"json": "tools format",
		"file": "messages[].images[] images[]",
	},
	Response: map[string]string{
		"model":  "model",
		"error":  "error",
		"done":   "done",
		"text":   "message.{content,thinking} message.tool_calls[].function.arguments.** response thinking",
		"input":  "prompt_eval_count",
		"output": "eval_count",
	},
	Streams:    true,
	Lines:      true,
	FileTokens: 1536,
	Errors:     ErrorsOllama,
})

// OllamaEmbed is Ollama's embeddings, which have no output. Others offer those of OpenAI at its path.
var OllamaEmbed = formatOf(Table{
	Name:     "ollama-embed",
	Routes:   []Route{{Path: "/api/embed"}, {Path: "/api/embeddings"}},
	Request:  map[string]string{"model": "model", "tokens": "input.** prompt.**"},
	Response: also(usageAt(usagePlaces), map[string]string{"input": "prompt_eval_count", "error": "error"}),
	OneSided: true,
	NoOutput: true,
	Errors:   ErrorsOllama,
})
