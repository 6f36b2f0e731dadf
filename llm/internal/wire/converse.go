package wire

// BedrockConverse is the format of Bedrock for every model. A stream has binary frames.
var BedrockConverse = formatOf(Table{
	Name: "bedrock-converse",
	Routes: []Route{
		{Path: "/model/*/converse"}, {Path: "/model/*/converse-stream", Stream: true},
	},
	Request: map[string]string{
		"max_output":         "inferenceConfig.maxTokens",
		"label:service_tier": "serviceTier.type",
		"label:speed":        "performanceConfig.latency",
		"text": "{system[],messages[].content[]}.{text,guardContent.text.text} " +
			"messages[].content[].toolResult.content[].text",
		"json": "toolConfig messages[].content[].toolUse messages[].content[].toolResult.content[].json",
		"file": "messages[].content[].{,toolResult.content[].}{image,document,video,audio}." +
			"source.{bytes,s3Location.uri}",
	},
	Response: map[string]string{
		"text": "{output.message.content[],delta}.{text,reasoningContent.text," +
			"reasoningContent.reasoningText.text} delta.toolUse.input " +
			"output.message.content[].toolUse.input.**",

		"input":        "{,metadata.}usage.inputTokens",
		"output":       "{,metadata.}usage.outputTokens",
		"total":        "{,metadata.}usage.totalTokens",
		"cache_read":   "{,metadata.}usage.{cacheReadInputTokens,cacheReadInputTokenCount}",
		"cache_write":  "{,metadata.}usage.{cacheWriteInputTokens,cacheWriteInputTokenCount}",
		"unnamed":      "{,metadata.}usage.**",
		"detail:cache": "{,metadata.}usage.cacheDetails[]",
		"detail_kind":  "{,metadata.}usage.cacheDetails[].ttl",
		"detail_count": "{,metadata.}usage.cacheDetails[].inputTokens",

		"label:service_tier": "serviceTier serviceTier.type",
		"label:speed":        "performanceConfig.latency",
	},
	Events:     map[string]eventKind{"metadata": endEvent},
	Beside:     true,
	FileTokens: 4784,
	Errors:     ErrorsAmazon,
})
