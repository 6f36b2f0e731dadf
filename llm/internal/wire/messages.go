package wire

// AnthropicMessages is Anthropic's messages, also on Vertex, where the path names the model.
var AnthropicMessages = formatOf(Table{
	Name: "anthropic-messages",
	Routes: []Route{
		{Path: "/messages"},
		{Path: "/publishers/anthropic/models/*:rawPredict"},
		{Path: "/publishers/anthropic/models/*:streamRawPredict", Stream: true},
	},
	Request: with(conversation, map[string]string{
		"max_output": "max_tokens",
		"choices":    "",
	}),
	Response: with(messagesUsage("{,message.,delta.}usage"), map[string]string{
		"input":      "{,message.,delta.}usage.{,iterations[].}input_tokens",
		"input_else": "{,message.,delta.}usage.prompt_tokens", // Kimi states both, and counts the cache here

		"type":  "type",
		"error": "error",
		"stop":  "{,message.,delta.}stop_reason",
		"text": "delta.{text,partial_json,thinking} " +
			"{content_block,content[]}.{text,thinking} {content_block,content[]}.input.**",
	}),
	Headers:    map[string]string{"cost": "X-Litellm-Response-Cost"},
	Events:     map[string]eventKind{"message_stop": endEvent, "error": faultEvent},
	Beside:     true,
	FileTokens: 4784,
	Errors:     ErrorsAnthropic,
})

// messagesUsage has the numbers of a usage at some paths. The output in message_start is a
// placeholder. The iterations are further readings of the prompt.
func messagesUsage(at string) map[string]string {
	each := at + ".iterations[]"
	return with(also(usageAt(at), numbersAt(each)), map[string]string{
		"output":           "{,delta.}usage.{output_tokens,completion_tokens} " + each + ".output_tokens",
		"output_else":      "message.usage.output_tokens",
		"reasoning_flat":   "",
		"total":            "",
		"detail:iteration": each,
		"detail_kind":      each + ".type",
		"detail_model":     each + ".model",
	})
}
