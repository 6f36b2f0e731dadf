package wire

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/adapters/llm/internal/jsonscan"
)

// ErrRequest is the error of a request body that is malformed, or that two servers could read in
// different ways. Its text names no part of the body.
var ErrRequest = errors.New("llm: malformed request")

// MaxCount is the largest max_tokens or n that is a number and no mistake.
const MaxCount = 1_000_000_000

const (
	maxModel   = 256 // bytes of a model's name
	maxChoices = 128 // the largest n that OpenAI accepts
)

// Request is what a request body asks for.
type Request struct {
	Format      Format
	Model       string // 1 to 256 bytes of UTF-8, as the client spells it
	Stream      bool   // the client asks for server-sent events
	MaxOutput   int64  // the client's cap on the tokens of one choice, 0 for none
	Choices     int64  // the answers that the client asks for, at least 1
	PromptBytes int64  // bytes that the model reads; 6,000 for each file
	Files       bool   // PromptBytes includes files
	AsksUsage   bool   // stream_options.include_usage is true
}

// PromptTokens returns a first guess of the input: a token for four bytes.
func (q *Request) PromptTokens() int64 { return tokensIn(q.PromptBytes) }

// HidesUsage reports whether the server states the usage only if InjectUsage asks for it.
func (q *Request) HidesUsage() bool { return q.Format == OpenAIChat && q.Stream && !q.AsksUsage }

// ParseRequest reads a body in one pass. Every error is an ErrRequest.
func ParseRequest(format Format, body []byte) (Request, error) {
	p := requestParser{}
	s := jsonscan.New(requestPaths, &p)
	s.Scan(body)
	switch complete := s.Finish(); {
	case p.err != nil:
		return Request{}, p.err
	case !complete:
		return Request{}, fmt.Errorf(
			"%w: it is not one JSON document, or nests too deeply", ErrRequest)
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
	sources  [jsonscan.MaxLevels + 1]source // by depth
}

// source is an object that holds a file, in base64 or as plain text.
type source struct {
	data   int64 // bytes of its data
	base64 bool
	other  bool // it states another type
}

func (p *requestParser) fail(s *jsonscan.Scanner, format string, args ...any) {
	p.err = fmt.Errorf("%w: "+format, append([]any{ErrRequest}, args...)...)
	s.Stop()
}

// Key refuses a member that comes twice, since servers disagree on which one counts. It refuses one
// in another case, since only some servers ignore it.
func (p *requestParser) Key(s *jsonscan.Scanner, n *node) {
	seen := &p.seen
	if n.Role == askOptions {
		seen = &p.options
	}
	key := string(s.Text())
	for i, k := range n.Kids {
		switch {
		case k.Key == key && *seen&(1<<i) != 0:
			p.fail(s, "%s comes twice", k.Key)
		case k.Key == key:
			*seen |= 1 << i
			return
		case strings.EqualFold(k.Key, key):
			p.fail(s, "%s is spelt in another case", k.Key)
		}
	}
}

func (p *requestParser) Begin(s *jsonscan.Scanner, n *node, kind byte) {
	switch n.Role {
	case askBody:
		if kind != '{' {
			p.fail(s, "it is no object")
		}
	case askOptions:
		if kind != '{' {
			p.fail(s, "%s is no object", n.Key)
		}
	case askModel, askStream, askUsage, askMaxTokens, askMaxCompletionTokens,
		askMaxOutputTokens, askChoices:
		p.fail(s, "%s has the wrong type", n.Key)
	case readRaw:
		p.rawStart = s.Offset()
	case readSource:
		p.sources[s.Depth()] = source{}
	}
}

func (p *requestParser) End(s *jsonscan.Scanner, n *node) {
	switch n.Role {
	case readRaw:
		p.request.PromptBytes += int64(s.Offset() + 1 - p.rawStart)
	case readSource:
		switch at := p.sources[s.Depth()]; {
		case at.data > 0 && at.base64 && !at.other:
			p.file()
		default:
			p.request.PromptBytes += at.data
		}
	}
}

func (p *requestParser) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	switch n.Role {
	case askBody:
		p.fail(s, "it is no object")
	case askModel:
		p.model(s, kind)
	case askStream:
		p.request.Stream = p.flag(s, n, kind)
	case askUsage:
		p.request.AsksUsage = p.flag(s, n, kind)
	case askOptions:
		if kind != 'n' {
			p.fail(s, "%s is no object", n.Key)
		}
	case askMaxTokens:
		p.maxTokens = p.count(s, n, kind, MaxCount)
	case askMaxCompletionTokens:
		p.maxCompletionTokens = p.count(s, n, kind, MaxCount)
	case askMaxOutputTokens:
		p.maxOutputTokens = p.count(s, n, kind, MaxCount)
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
	p.request.Files = true
}

// prompt counts a string that the model reads.
func (p *requestParser) prompt(s *jsonscan.Scanner, n *node) {
	switch n.Role {
	case readText, readRaw:
		p.request.PromptBytes += s.Size()
	case readFile:
		if s.Size() > 0 {
			p.file()
		}
	case readSourceType:
		at := &p.sources[s.Depth()]
		if string(s.Text()) == "base64" {
			at.base64 = true
		} else {
			at.other = true
		}
	case readSourceData:
		p.sources[s.Depth()].data += s.Size()
	}
}

// model reads the name of the model. It refuses U+FFFD, which stands for bytes that each server
// decodes in its own way.
func (p *requestParser) model(s *jsonscan.Scanner, kind byte) {
	name := string(s.Text())
	switch {
	case kind != '"':
		p.fail(s, "model is no string")
	case name == "":
		p.fail(s, "model is empty")
	case s.Size() > maxModel:
		p.fail(s, "model is longer than %d bytes", maxModel)
	case strings.ContainsRune(name, utf8.RuneError):
		p.fail(s, "model is not valid UTF-8")
	}
	p.request.Model = name
}

// flag reads a boolean. Null means that the member is absent, as in every number.
func (p *requestParser) flag(s *jsonscan.Scanner, n *node, kind byte) bool {
	if kind != 't' && kind != 'f' && kind != 'n' {
		p.fail(s, "%s is no boolean", n.Key)
	}
	return kind == 't'
}

// count reads an integer between 0 and most. Some servers take 1e3 or 5.0 and others do not.
func (p *requestParser) count(s *jsonscan.Scanner, n *node, kind byte, most int64) int64 {
	if kind == 'n' {
		return 0
	}
	if kind != '0' {
		p.fail(s, "%s is no number", n.Key)
		return 0
	}
	var v int64
	for _, c := range s.Text() {
		if c < '0' || c > '9' {
			p.fail(s, "%s is no integer of at least 0", n.Key)
			return 0
		}
		if v = v*10 + int64(c-'0'); v > most {
			p.fail(s, "%s is more than %d", n.Key, most)
			return 0
		}
	}
	return v
}
