package llm

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ErrRequest is the error of a request body that is malformed, or that two servers could read in
// different ways. Its text names no part of the body.
var ErrRequest = errors.New("llm: malformed request")

const (
	maxModel   = 256           // bytes of a model's name
	maxCount   = 1_000_000_000 // the largest max_tokens or n that is a number and no mistake
	maxChoices = 128           // the largest n that OpenAI accepts
)

// Request is what a request body asks for.
type Request struct {
	// Format is the format of the body and of the response.
	Format Format
	// Model is the name of the model as the client spells it, 1 to 256 bytes of UTF-8.
	Model string
	// Stream says that the client asks for server-sent events.
	Stream bool
	// MaxOutput is the client's cap on the tokens of one choice. Zero means that it sets none. It is
	// max_completion_tokens, or without one max_tokens, of a chat; max_output_tokens of responses;
	// and max_tokens of messages.
	MaxOutput int64
	// Choices is how many answers the client asks for: n of a chat, and otherwise 1.
	Choices int64
	// PromptBytes is how many bytes the model reads: the decoded strings of the prompt and the JSON
	// of the tools. Each image, audio clip or file counts as 6,000 bytes.
	PromptBytes int64

	asksUsage bool // stream_options.include_usage is true
	files     bool // some of PromptBytes stands for files
}

// parseRequest reads a body in one pass. Every error is an ErrRequest.
func parseRequest(format Format, body []byte) (Request, error) {
	p := requestParser{}
	s := scanner{visit: &p, root: requestPaths}
	s.reset()
	s.scan(body)
	switch complete := s.finish(); {
	case p.err != nil:
		return Request{}, p.err
	case !complete:
		return Request{}, fmt.Errorf("%w: it is not one JSON document, or nests too deeply", ErrRequest)
	case p.request.Model == "":
		return Request{}, fmt.Errorf("%w: model is missing", ErrRequest)
	}
	p.request.Format = format
	p.request.Choices = 1
	switch format {
	case OpenAIChat:
		p.request.Choices = max(p.choices, 1)
		p.request.MaxOutput = p.maxTokens
		if p.maxCompletionTokens > 0 {
			p.request.MaxOutput = p.maxCompletionTokens
		}
	case OpenAIResponses:
		p.request.MaxOutput = p.maxOutputTokens
	case AnthropicMessages:
		p.request.MaxOutput = p.maxTokens
	}
	return p.request, nil
}

// requestParser is the visitor of a request body.
type requestParser struct {
	request Request
	err     error
	seen    uint64 // a bit for each member of the body that has a node
	options uint64 // the same for stream_options

	maxTokens, maxCompletionTokens, maxOutputTokens, choices int64

	rawStart int
	sources  [maxKeys + 1]source // by depth
}

// source is an object that holds a file: in base64, or as plain text if it says so.
type source struct {
	data   int64 // bytes of its data
	base64 bool
	other  bool // it says another type
}

func (p *requestParser) fail(s *scanner, format string, args ...any) {
	p.err = fmt.Errorf("%w: "+format, append([]any{ErrRequest}, args...)...)
	s.state = broken
}

// key refuses a member that comes twice, since servers disagree on which one counts, and one in
// another case, since only some servers ignore it.
func (p *requestParser) key(s *scanner, n *node) {
	seen := &p.seen
	if n.role == askOptions {
		seen = &p.options
	}
	key := string(s.text())
	for i, k := range n.kids {
		switch {
		case k.key == key && *seen&(1<<i) != 0:
			p.fail(s, "%s comes twice", k.key)
		case k.key == key:
			*seen |= 1 << i
			return
		case strings.EqualFold(k.key, key):
			p.fail(s, "%s is spelt in another case", k.key)
		}
	}
}

func (p *requestParser) begin(s *scanner, n *node, kind byte) {
	switch n.role {
	case askBody:
		if kind != '{' {
			p.fail(s, "it is no object")
		}
	case askOptions:
		if kind != '{' {
			p.fail(s, "%s is no object", n.key)
		}
	case askModel, askStream, askUsage, askMaxTokens, askMaxCompletionTokens,
		askMaxOutputTokens, askChoices:
		p.fail(s, "%s has the wrong type", n.key)
	case readRaw:
		p.rawStart = s.offset
	case readSource:
		p.sources[s.depth] = source{}
	}
}

func (p *requestParser) end(s *scanner, n *node) {
	switch n.role {
	case readRaw:
		p.request.PromptBytes += int64(s.offset + 1 - p.rawStart)
	case readSource:
		switch at := p.sources[s.depth]; {
		case at.data > 0 && at.base64 && !at.other:
			p.file()
		default:
			p.request.PromptBytes += at.data
		}
	}
}

func (p *requestParser) scalar(s *scanner, n *node, kind byte) {
	switch n.role {
	case askBody:
		p.fail(s, "it is no object")
	case askModel:
		p.model(s, kind)
	case askStream:
		p.request.Stream = p.flag(s, n, kind)
	case askUsage:
		p.request.asksUsage = p.flag(s, n, kind)
	case askOptions:
		if kind != 'n' {
			p.fail(s, "%s is no object", n.key)
		}
	case askMaxTokens:
		p.maxTokens = p.count(s, n, kind, maxCount)
	case askMaxCompletionTokens:
		p.maxCompletionTokens = p.count(s, n, kind, maxCount)
	case askMaxOutputTokens:
		p.maxOutputTokens = p.count(s, n, kind, maxCount)
	case askChoices:
		p.choices = p.count(s, n, kind, maxChoices)
	default:
		if kind == '"' {
			p.prompt(s, n)
		}
	}
}

// file counts a file that the model reads.
func (p *requestParser) file() {
	p.request.PromptBytes += fileBytes
	p.request.files = true
}

// prompt counts a string that the model reads.
func (p *requestParser) prompt(s *scanner, n *node) {
	switch n.role {
	case readText, readRaw:
		p.request.PromptBytes += s.size
	case readFile:
		if s.size > 0 {
			p.file()
		}
	case readSourceType:
		at := &p.sources[s.depth]
		if string(s.text()) == "base64" {
			at.base64 = true
		} else {
			at.other = true
		}
	case readSourceData:
		p.sources[s.depth].data += s.size
	}
}

// model refuses a name with U+FFFD: it stands for bytes that each server decodes in its own way.
func (p *requestParser) model(s *scanner, kind byte) {
	name := string(s.text())
	switch {
	case kind != '"':
		p.fail(s, "model is no string")
	case name == "":
		p.fail(s, "model is empty")
	case s.size > maxModel:
		p.fail(s, "model is longer than %d bytes", maxModel)
	case strings.ContainsRune(name, utf8.RuneError):
		p.fail(s, "model is not valid UTF-8")
	}
	p.request.Model = name
}

// flag reads a boolean. Null stands for a member that is absent, as in every number.
func (p *requestParser) flag(s *scanner, n *node, kind byte) bool {
	if kind != 't' && kind != 'f' && kind != 'n' {
		p.fail(s, "%s is no boolean", n.key)
	}
	return kind == 't'
}

// count reads an integer between 0 and most. Some servers take 1e3 or 5.0 and others do not.
func (p *requestParser) count(s *scanner, n *node, kind byte, most int64) int64 {
	if kind == 'n' {
		return 0
	}
	if kind != '0' {
		p.fail(s, "%s is no number", n.key)
		return 0
	}
	var v int64
	for _, c := range s.text() {
		if c < '0' || c > '9' {
			p.fail(s, "%s is no integer of at least 0", n.key)
			return 0
		}
		if v = v*10 + int64(c-'0'); v > most {
			p.fail(s, "%s is more than %d", n.key, most)
			return 0
		}
	}
	return v
}
