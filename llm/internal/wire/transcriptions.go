package wire

// OpenAITranscriptions is OpenAI's transcriptions and translations of sound. Their models are
// billed by tokens or by time. The request is a form.
var OpenAITranscriptions = formatOf(Table{
	Name: "openai-transcription",
	Routes: []Route{
		{Path: "/openai/deployments/*/audio/transcriptions"}, {Path: "/audio/transcriptions"},
		{Path: "/openai/deployments/*/audio/translations"}, {Path: "/audio/translations"},
	},
	Request: map[string]string{"model": "model", "stream": "stream", "text": "prompt"},
	Response: with(usageAt(usagePlaces), map[string]string{
		"type":           "type",
		"error":          "error",
		"text":           "text delta",
		"milli:audio_ms": usagePlaces + ".{seconds,prompt_audio_seconds}",
		// Groq states no usage, and the time only with a verbose_json.
		"milli_else:audio_ms": "duration",
	}),
	Events: map[string]eventKind{
		"transcript.text.done": endEvent, "transcription.done": endEvent, "error": faultEvent,
	},
	OneSided:   true,
	Unit:       audioUnit,
	FileTokens: 1536,
})
