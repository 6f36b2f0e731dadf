package wire

// OpenAIResponses is OpenAI's responses.
var OpenAIResponses = formatOf(Table{
	Name:   "openai-responses",
	Routes: []Route{{Path: "/responses"}, {Path: "/responses/compact"}},
	Request: with(conversation, map[string]string{
		"prompt":      "prompt.id",
		"max_output":  "max_output_tokens",
		"choices":     "",
		"image_model": "tools[].model",
	}),
	Response: also(also(usageAt(usagePlaces), numbersAt("{,response.}tool_usage.image_gen")), map[string]string{
		"unnamed": "{,response.}tool_usage.**",
		"named":   "{,response.}tool_usage.image_gen.{" + inDetails + "}.text_tokens",

		"type":     "type",
		"sequence": "sequence_number",
		"error":    "error response.error",
		"text":     "delta output[].{content[],summary[]}.{text,refusal} output[].{arguments,input,code}",

		"unit:web_search": "{,response.}tool_usage.web_search.num_requests",
		"detail:image":    "{,response.}tool_usage.image_gen",
		"draws":           "{,response.}tools[].model",
		"items":           "{,response.}output",
		"detail:item":     "{,response.}output[] item",
		"detail_kind":     "{,response.}output[].type item.type",
		"detail_action":   "{,response.}output[].action.type item.action.type",
		"detail_container": "{,response.}output[].{container_id,environment.container_id} " +
			"item.{container_id,environment.container_id}",
	}),
	Headers: map[string]string{"cost": "X-Litellm-Response-Cost"},
	Events: map[string]eventKind{
		"response.completed":          endEvent,
		"response.incomplete":         endEvent,
		"response.failed":             failedEvent,
		"error":                       faultEvent,
		"response.audio.delta":        silentEvent,
		"response.output_audio.delta": silentEvent,
		"response.output_item.done":   itemEvent,
	},
	FileTokens: 1536,
	Errors:     ErrorsResponses,
})
