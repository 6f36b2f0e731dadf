package llm

import "github.com/headgate/headgate/adapters/llm/internal/wire"

// ErrRequest is the error of a request body that is malformed, or that two servers could read in
// different ways. Its text names no part of the body.
var ErrRequest = wire.ErrRequest

// Request is what a request body asks for.
type Request struct {
	// Format is the format of the body and of the response.
	Format Format
	// Model is the name of the model as the client spells it, 1 to 256 bytes of UTF-8.
	Model string
	// Stream says that the client asks for a stream.
	Stream bool
	// MaxOutput is the client's cap on the tokens of one choice. Zero means no cap. In a chat it is
	// max_completion_tokens, or max_tokens without one. In responses it is max_output_tokens, and
	// in messages max_tokens. A cap of -1 is none.
	MaxOutput int64
	// Choices is the number of answers that the client asks for: n of a chat, and 1 otherwise.
	Choices int64
	// PromptBytes is the number of bytes that the model reads: the decoded strings of the prompt
	// and the JSON of the tools. Images, audio clips and files do not count.
	PromptBytes int64
	// Files is the number of images, audio clips and files that the model reads.
	Files int64
	// Effort is how much the model is asked to reason, such as low. It is empty if the client does
	// not say.
	Effort string
}

func requestOf(q *wire.Request) Request {
	return Request{
		Format: Format{q.Format}, Model: q.Model, Stream: q.Stream, MaxOutput: q.MaxOutput,
		Choices: q.Choices, PromptBytes: q.PromptBytes, Files: q.Files, Effort: q.Effort,
	}
}
