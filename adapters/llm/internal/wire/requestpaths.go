package wire

import "github.com/headgate/headgate/adapters/llm/internal/jsonscan"

// The tables leave out the name of the package.
type node = jsonscan.Node

var object, array = jsonscan.Object, jsonscan.Array

// fileBytes is the number of bytes for an image, an audio clip or a file: 1,500 tokens of four
// bytes, which is what providers charge for a large image.
const fileBytes = 6000

// Roles in a request.
const (
	_       jsonscan.Role = iota
	askBody               // the whole body
	askModel
	askStream
	askOptions // stream_options
	askUsage   // stream_options.include_usage
	askMaxTokens
	askMaxCompletionTokens
	askMaxOutputTokens
	askChoices
	readText // strings count
	readRaw  // the JSON counts as it is spelt
	readFile // a string counts as fileBytes
	readSource
	readSourceType
	readSourceData
)

// requestPaths is the table of a request body in any format. A string counts as a file only where a
// format has files. Elsewhere the model reads it as text, whatever its key is.
var requestPaths = func() *node {
	text := &node{Role: readText}
	text.Each, text.Rest = text, text
	file := func(key string) *node { return object(key, readFile) }
	within := func(n *node) *node { // strings under n count
		n.Role, n.Rest = readText, text
		return n
	}
	// A chat has an object here, and responses have the URL itself.
	image := &node{Key: "image_url", Role: readFile, Kids: []*node{file("url")}, Rest: text}
	block := within(&node{})
	block.Kids = []*node{
		within(array("content", block)), // of a tool_result
		{Key: "source", Role: readSource, Rest: text, Kids: []*node{
			object("type", readSourceType), object("data", readSourceData),
			file("url"), file("file_id"), within(array("content", block)),
		}},
		image,
		within(object("input_audio", readText, file("data"))),
		within(object("file", readText, file("file_data"), file("file_id"))),
		file("file_data"), file("file_url"), file("file_id"),
		object("input", readRaw), // of a tool_use
	}
	message := within(&node{})
	output := within(array("output", block)) // of a function call or of a screenshot
	output.Kids = []*node{image, file("file_id")}
	message.Kids = []*node{within(array("content", block)), output, file("result")}

	return &node{Role: askBody, Watch: true, Kids: []*node{
		object("model", askModel),
		object("stream", askStream),
		{Key: "stream_options", Role: askOptions, Watch: true,
			Kids: []*node{object("include_usage", askUsage)}},
		object("max_tokens", askMaxTokens),
		object("max_completion_tokens", askMaxCompletionTokens),
		object("max_output_tokens", askMaxOutputTokens),
		object("n", askChoices),
		within(array("messages", message)),
		within(array("input", message)),
		within(array("instructions", message)),
		within(object("system", readText)),
		within(object("prompt", readText)),
		object("tools", readRaw),
		object("functions", readRaw),
		object("response_format", readRaw),
		object("text", readRaw),
		object("output_format", readRaw),
		object("output_config", readRaw),
	}}
}()
