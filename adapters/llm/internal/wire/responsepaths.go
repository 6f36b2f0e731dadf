package wire

import "github.com/headgate/headgate/adapters/llm/internal/jsonscan"

// Roles in a response.
const (
	_         jsonscan.Role = iota
	tellText                // strings are text that the model wrote
	tellUsage               // an object with the numbers of the whole response
	tellPart                // one that may be preliminary: of message_start or in response
	tellInput               // numbers of a usage object
	tellRead
	tellWrite
	tellOutput
	tellSequence // the number of the event
	tellType     // the type of the event
	tellError    // anything other than null
	tellChoices  // the array of choices
	tellChoice   // one of them
	tellFinish   // finish_reason: a string says that the choice has ended
)

// responsePaths has the table of each format, for events and for whole documents alike: their paths
// do not overlap.
var responsePaths = [...]*node{
	OpenAIChat:        chatPaths(),
	OpenAIResponses:   responsesPaths(),
	AnthropicMessages: messagesPaths(),
}

func text(key string) *node { return object(key, tellText) }

// anyText returns a node under which every string is text.
func anyText(key string) *node {
	n := text(key)
	n.Rest = text("")
	n.Rest.Rest = n.Rest
	return n
}

func chatPaths() *node {
	call := object("function", 0, text("arguments"))
	content := array("content", object("", 0, text("text")))
	content.Role = tellText
	said := []*node{
		content, text("reasoning_content"), text("reasoning"), text("refusal"),
		array("tool_calls", object("", 0, call)),
		object("function_call", 0, text("arguments")),
	}
	choices := array("choices", object("", tellChoice,
		object("delta", 0, said...), object("message", 0, said...),
		object("finish_reason", tellFinish)))
	choices.Role = tellChoices
	return object("", 0, choices, object("error", tellError), object("usage", tellUsage,
		object("prompt_tokens", tellInput),
		object("completion_tokens", tellOutput),
		object("prompt_tokens_details", 0, object("cached_tokens", tellRead))))
}

func responsesPaths() *node {
	numbers := []*node{
		object("input_tokens", tellInput),
		object("output_tokens", tellOutput),
		object("input_tokens_details", 0, object("cached_tokens", tellRead)),
	}
	part := object("", 0, text("text"), text("refusal"))
	item := object("", 0,
		array("content", part), array("summary", part), text("arguments"), text("input"))
	return object("", 0,
		object("type", tellType), object("sequence_number", tellSequence), text("delta"),
		object("response", 0, object("usage", tellPart, numbers...)),
		object("error", tellError), object("usage", tellUsage, numbers...), array("output", item))
}

func messagesPaths() *node {
	numbers := []*node{
		object("input_tokens", tellInput),
		object("cache_read_input_tokens", tellRead),
		object("cache_creation_input_tokens", tellWrite),
		object("output_tokens", tellOutput),
	}
	block := object("", 0, text("text"), text("thinking"), anyText("input"))
	return object("", 0,
		object("type", tellType),
		object("delta", 0, text("text"), text("partial_json"), text("thinking")),
		object("content_block", 0, text("text"), text("thinking"), anyText("input")),
		object("message", 0, object("usage", tellPart, numbers...)),
		object("error", tellError), object("usage", tellUsage, numbers...), array("content", block))
}
