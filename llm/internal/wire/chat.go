package wire

// OpenAIChat is OpenAI's chat completions, which most other servers offer too. Its usage has the
// names of every dialect.
var OpenAIChat = formatOf(Table{
	Name: "openai-chat",
	Routes: []Route{
		{Path: "/openai/deployments/*/chat/completions"}, {Path: "/engines/*/chat/completions"},
		{Path: "/chat/completions"},
	},
	Request: with(conversation, map[string]string{
		"options":    "stream_options",
		"asks_usage": "stream_options.include_usage",
		"max_output": "max_completion_tokens max_tokens",

		"unit:web_search": "web_search_options",
	}),
	Response: with(usageAt(usagePlaces), map[string]string{
		"usage":      "usage",
		"choices":    "choices",
		"choice":     "choices[]",
		"finish":     "choices[].finish_reason",
		"error":      "error",
		"error_code": "base_resp.status_code", // MiniMax
		"object":     "object",                // an old vLLM

		"input_else":      "timings.prompt_n", // llama.cpp, unless it is asked for a usage
		"cache_read_else": "timings.cache_n",
		"output_else":     "timings.predicted_n",

		"call_index":        "choices[].{delta,message}.executed_tools[].index", // Groq's
		"detail:annotation": "choices[].{delta,message}.annotations[]",
		"detail_kind":       "choices[].{delta,message}.annotations[].type",

		"text": "choices[].{delta,message}.{content,content[].text,content[].thinking," +
			"content[].thinking[].text,refusal," +
			"tool_calls[].function.arguments,function_call.arguments,audio.transcript}",
		"thought":       "choices[].{delta,message}.reasoning_content",
		"thought_again": "choices[].{delta,message}.reasoning", // vLLM writes both with the same text
	}),
	Headers: map[string]string{
		"cost":       "X-Litellm-Response-Cost",
		"input":      "Fireworks-Prompt-Tokens",
		"cache_read": "Fireworks-Cached-Prompt-Tokens",
	},
	AsksUsage:  true,
	FileTokens: 1536,
})
