package wire

// BedrockInvoke is a model's own format on Bedrock, which states the usage in headers or in the
// last frame of a stream.
var BedrockInvoke = formatOf(Table{
	Name: "bedrock-invoke",
	Routes: []Route{
		{Path: "/model/*/invoke"}, {Path: "/model/*/invoke-with-response-stream", Stream: true},
	},
	Request: with(conversation, map[string]string{
		"model":      "",
		"max_output": "max_tokens max_completion_tokens max_gen_len textGenerationConfig.maxTokenCount",
		"choices":    "",
		"text":       conversation["text"] + " inputText",
	}),
	Response: also(messagesUsage("{,message.,delta.}usage"), map[string]string{
		"type":  "type",
		"error": "error",
		"text": "{content_block,content[]}.{text,thinking} {content_block,content[]}.input.** " +
			"delta.{text,partial_json,thinking} choices[].{delta,message}.content generation " +
			"outputText results[].outputText",
		"total":       "usage.total_tokens", // which tells whether the cache is a part of the input
		"input":       "amazon-bedrock-invocationMetrics.inputTokenCount",
		"output":      "amazon-bedrock-invocationMetrics.outputTokenCount",
		"cache_read":  "amazon-bedrock-invocationMetrics.cacheReadInputTokenCount",
		"cache_write": "amazon-bedrock-invocationMetrics.cacheWriteInputTokenCount",
	}),
	Headers: map[string]string{
		"input":       "X-Amzn-Bedrock-Input-Token-Count",
		"output":      "X-Amzn-Bedrock-Output-Token-Count",
		"cache_read":  "X-Amzn-Bedrock-Cache-Read-Input-Token-Count",
		"cache_write": "X-Amzn-Bedrock-Cache-Write-Input-Token-Count",
	},
	Events:     map[string]string{"message_stop": "end"},
	Beside:     true,
	OneSided:   true, // an embedding has no output
	FileTokens: 4784,
	Errors:     ErrorsAmazon,
})
