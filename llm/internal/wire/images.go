package wire

// OpenAIImages is OpenAI's generations and edits of images. Edits are a form.
var OpenAIImages = formatOf(Table{
	Name: "openai-images",
	Routes: []Route{
		{Path: "/openai/deployments/*/images/generations"}, {Path: "/images/generations"},
		{Path: "/openai/deployments/*/images/edits"}, {Path: "/images/edits"},
	},
	Request: map[string]string{
		"model": "model", "stream": "stream", "choices": "n", "text": "prompt",
		"file": "images[].{image_url,file_id} mask.{image_url,file_id}",
	},
	Response: with(usageAt(usagePlaces), map[string]string{
		"type":  "type",
		"error": "error",
	}),
	Events: map[string]eventKind{
		"image_generation.completed": endEvent, "image_edit.completed": endEvent, "error": faultEvent,
	},
	OneSided:   true,
	Unit:       "image",
	ImageOut:   true,
	FileTokens: 1536,
})
