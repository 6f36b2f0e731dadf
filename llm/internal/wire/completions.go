package wire

// OpenAICompletions is OpenAI's legacy completions.
var OpenAICompletions = formatOf(Table{
	Name: "openai-completions",
	Routes: []Route{
		{Path: "/openai/deployments/*/completions"}, {Path: "/engines/*/completions"},
		{Path: "/completions"},
	},
	Request: map[string]string{
		"model":      "model",
		"stream":     "stream",
		"options":    "stream_options",
		"asks_usage": "stream_options.include_usage",
		"max_output": "max_tokens",
		"choices":    "n best_of",
		"tokens":     "prompt.** suffix",
	},
	Response: with(usageAt(usagePlaces), map[string]string{
		"usage":   "usage",
		"choices": "choices",
		"choice":  "choices[]",
		"finish":  "choices[].finish_reason",
		"error":   "error",
		"object":  "object",
		"text":    "choices[].text choices[].{delta,message}.content", // the last is Mistral's
	}),
	Headers:   map[string]string{"cost": "X-Litellm-Response-Cost"},
	AsksUsage: true,
})
