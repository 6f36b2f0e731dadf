package wire

// BedrockInvoke is a model's own format on Bedrock, which states the usage in headers or in the
// last frame of a stream.
var BedrockInvoke = formatOf(Table{
	Name: "bedrock-invoke",
	Routes: []Route{
		{Path: "/model/*/invoke"}, {Path: "/model/*/invoke-with-response-stream", Stream: true},
	},
	Request: with(conversation, map[string]string{
		"model":   "",
		"choices": "",
		"max_output": "max_tokens max_completion_tokens max_gen_len textGenerationConfig.maxTokenCount " +
			"inferenceConfig.{maxTokens,max_new_tokens} max_tokens_to_sample maxTokens",
		"text": conversation["text"] + " inputText texts.** singleEmbeddingParams.text.value",
	}),
	Response: also(messagesUsage("{,message.,delta.}usage"), map[string]string{
		"type":  "type",
		"error": "error",
		"text": "{content_block,content[]}.{text,thinking} {content_block,content[]}.input.** " +
			"delta.{text,partial_json,thinking} choices[].{delta,message}.content generation " +
			"outputText results[].outputText completion outputs[].text generations[].text text " +
			"contentBlockDelta.delta.text output.message.content[].text", // the last two are Nova's
		"total":  "usage.{total_tokens,totalTokens}", // which tells whether the cache is a part of the input
		"input":  "amazon-bedrock-invocationMetrics.inputTokenCount {,metadata.}usage.inputTokens",
		"output": "amazon-bedrock-invocationMetrics.outputTokenCount {,metadata.}usage.outputTokens",
		"cache_read": "amazon-bedrock-invocationMetrics.cacheReadInputTokenCount " +
			"{,metadata.}usage.cacheReadInputTokenCount",
		"cache_write": "amazon-bedrock-invocationMetrics.cacheWriteInputTokenCount " +
			"{,metadata.}usage.cacheWriteInputTokenCount",
	}),
	Headers: map[string]string{
		"input":       "X-Amzn-Bedrock-Input-Token-Count",
		"output":      "X-Amzn-Bedrock-Output-Token-Count",
		"cache_read":  "X-Amzn-Bedrock-Cache-Read-Input-Token-Count",
		"cache_write": "X-Amzn-Bedrock-Cache-Write-Input-Token-Count",
	},
	Events:     map[string]eventKind{"message_stop": endEvent},
	Beside:     true,
	OneSided:   true, // an embedding has no output
	FileTokens: 4784,
	Errors:     ErrorsAmazon,
})
