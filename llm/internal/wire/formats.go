package wire

// Formats are the formats that are known, in the order in which they are asked for a path.
var Formats = []*Format{
	OpenAIChat, OpenAIResponses, AnthropicMessages, GeminiGenerate,
	OllamaEmbed, OpenAIEmbeddings, OpenAICompletions, OpenAITranscriptions, OpenAIImages,
	BedrockConverse, BedrockInvoke, CohereChat, CohereRerank, Ollama,
}
