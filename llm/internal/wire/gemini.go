package wire

// GeminiGenerate is Gemini's own format, also on Vertex. A stream is an array unless the client
// asks for events.
var GeminiGenerate = formatOf(Table{
	Name: "gemini-generate",
	Routes: []Route{
		{Path: "/models/*:generateContent"}, {Path: "/models/*:streamGenerateContent", Stream: true},
		{Path: "/endpoints/*:generateContent"}, // a tuned model on Vertex
		{Path: "/endpoints/*:streamGenerateContent", Stream: true},
	},
	Request: map[string]string{
		"max_output": "{generationConfig,generation_config}.{maxOutputTokens,max_output_tokens}",
		"choices":    "{generationConfig,generation_config}.{candidateCount,candidate_count}",
		"text": "{contents,contents[]}.parts[].text {contents,contents[]}.parts.text " +
			"{systemInstruction,system_instruction}.{parts[],parts}.text",
		"label:service_tier": "service_tier serviceTier",
		"unit:web_search":    "tools[].{googleSearch,google_search}",
		"unit:maps_prompt":   "tools[].{googleMaps,google_maps}",
		"json": "{contents,contents[]}.parts[].{functionCall,functionResponse} tools toolConfig " +
			"generationConfig.responseSchema",
		"file": "{contents,contents[]}.parts[].{inlineData,inline_data}.data " +
			"{contents,contents[]}.parts[].{fileData.fileUri,file_data.file_uri}",
	},
	Response: map[string]string{
		"model":  "modelVersion",
		"error":  "error promptFeedback.blockReason",
		"finish": "candidates[].finishReason",
		"text":   "candidates[].content.parts[].text candidates[].content.parts[].functionCall.args.**",

		"input":            "usageMetadata.promptTokenCount",
		"input_beside":     "usageMetadata.toolUsePromptTokenCount",
		"cache_read":       "usageMetadata.cachedContentTokenCount",
		"output":           "usageMetadata.{candidatesTokenCount,responseTokenCount}",
		"reasoning_beside": "usageMetadata.thoughtsTokenCount",

		"detail:in":    "usageMetadata.promptTokensDetails[]",
		"detail:read":  "usageMetadata.cacheTokensDetails[]",
		"detail:out":   "usageMetadata.{candidatesTokensDetails,responseTokensDetails}[]",
		"detail_kind":  "usageMetadata.{" + geminiDetails + "}[].modality",
		"detail_count": "usageMetadata.{" + geminiDetails + "}[].tokenCount",

		"unnamed": "usageMetadata.**",
		"named": "usageMetadata.totalTokenCount usageMetadata.{toolUsePromptTokensDetails," +
			"billablePromptUsage,billableCachedContentUsage}.**", // the last two are Vertex's, in characters

		"has:maps_prompt":           "candidates[].groundingMetadata.groundingChunks[].maps",
		"query":                     "candidates[].groundingMetadata.webSearchQueries[]",
		"unread:imageSearchQueries": "candidates[].groundingMetadata.imageSearchQueries[]",
		"label:service_tier":        "usageMetadata.{trafficType,serviceTier}",
	},
	OneSided:   true,
	FileTokens: 1548,
	Errors:     ErrorsGoogle,
})

const geminiDetails = "promptTokensDetails,cacheTokensDetails,candidatesTokensDetails,responseTokensDetails"
