package wire

// Formats are the formats that are known.
var Formats = []*Format{
	OpenAIChat, OpenAIResponses, AnthropicMessages, GeminiGenerate,
	OllamaEmbed, OpenAIEmbeddings, OpenAICompletions, OpenAITranscriptions, OpenAIImages,
	BedrockConverse, BedrockInvoke, CohereChat, CohereRerank, Ollama,
}

// Routes are the paths of the formats, in the order in which they are asked.
var Routes = func() []Route {
	all := []Route{
		{Path: "/models/count-tokens:rawPredict"}, // of Anthropic's on Vertex, which is free
		{Path: "/threads/*/messages"},             // of OpenAI's assistants
	}
	for _, f := range Formats {
		for _, r := range f.table.Routes {
			all = append(all, Route{r.Path, f, r.Stream})
		}
	}
	return all
}()
