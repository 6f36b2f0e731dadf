package wire

// OpenAIEmbeddings is OpenAI's embeddings, which have no output.
var OpenAIEmbeddings = formatOf(Table{
	Name: "openai-embeddings",
	Routes: []Route{
		{Path: "/openai/deployments/*/embeddings"}, {Path: "/embeddings"},
	},
	Request:  map[string]string{"model": "model", "tokens": "input.**"},
	Response: with(usageAt(usagePlaces), map[string]string{"error": "error", "object": "object"}),
	Headers:  map[string]string{"cost": "X-Litellm-Response-Cost"},
	OneSided: true,
	NoOutput: true,
})
