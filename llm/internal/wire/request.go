package wire

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/llm/internal/jsonscan"
)

// ErrRequest is the error of a request body that is malformed, or that two servers could read in
// different ways. Its text names no part of the body.
var ErrRequest = errors.New("llm: malformed request")

// MaxCount is the largest max_tokens or n that is a number and no mistake.
const MaxCount = 1_000_000_000

const (
	maxModel   = 256 // bytes of a model's name
	maxModels  = 16  // of one request
	maxChoices = 128 // the largest n that OpenAI accepts
)

// storedPrompt is before the name of a prompt that stands for the model in it.
const storedPrompt = "prompt:"

// Request is what a request asks for.
type Request struct {
	Target
	Model       string   // 1 to 256 bytes of UTF-8, as the client spells it
	Models      []string // all that may serve: Model, and what the body names beside it
	InPath      bool     // the path names Model, and the body need not
	InBody      bool     // the body names one as its model
	Fallbacks   bool     // the body names others beside it
	Stream      bool     // the client asks for a stream
	MaxOutput   int64    // the client's cap on the tokens of one choice, 0 for none
	Choices     int64    // the answers that the client asks for, at least 1
	PromptBytes int64    // bytes that the model reads, without files
	Files       int64    // that the model reads
	AsksUsage   bool     // stream_options.include_usage is true
	ImageModel  string   // that a tool of the model draws with, or empty

	// Units is the pieces that the response may be billed for.
	Units map[string]int64

	// Labels is what the client asks for of what decides the price, in lower case: service_tier,
	// speed, geo. It is nil without any.
	Labels map[string]string

	weight weight // of the prompt
	at     places
}

// PromptTokens returns a first guess of the input, by the kinds of its bytes and by its files.
func (q *Request) PromptTokens() int64 {
	return q.weight.tokens() + q.Files*q.Format.table.FileTokens
}

// HidesUsage reports whether the server states the usage only if InjectUsage asks for it.
func (q *Request) HidesUsage() bool {
	return q.Format.table.AsksUsage && q.Stream && !q.AsksUsage
}

// ParseRequest reads a request of a target in one pass over its body. Every error is an ErrRequest.
func ParseRequest(t Target, h http.Header, body []byte) (Request, error) {
	f := t.Format
	p := requestParser{body: body, request: Request{Target: t, Stream: f.table.Streams}}
	var err error
	if boundary := boundaryOf(h); boundary != "" {
		err = p.form(f, boundary)
	} else {
		err = p.document(f)
	}
	q := p.request
	if model := t.model(); model != "" {
		q.Models, q.InPath = []string{model}, true
		if fault := faultOfModel(model); err == nil && fault != "" {
			err = fmt.Errorf("%w: %s", ErrRequest, fault)
		}
	}
	if q.InBody = q.Model != ""; q.InBody {
		q.Models = append(q.Models, q.Model)
	} else if p.stored != "" {
		q.Models = append(q.Models, storedPrompt+p.stored)
	}
	q.Models, q.Fallbacks = distinct(append(q.Models, p.others...)), p.others != nil
	switch {
	case err != nil:
		return Request{}, err
	case len(q.Models) == 0:
		return Request{}, fmt.Errorf("%w: model is missing", ErrRequest)
	case len(q.Models) > maxModels:
		return Request{}, fmt.Errorf("%w: it names more than %d models", ErrRequest, maxModels)
	}
	q.Model = q.Models[0] // a server that reads several places goes by the path
	q.Stream = q.Stream || t.streams
	q.Choices = max(q.Choices, 1)
	q.usePieces(f.table.Unit, int64(len(body)))
	for _, n := range p.caps {
		if n > 0 {
			q.MaxOutput = max(n, p.otherCap)
			break
		}
	}
	return q, nil
}

// distinct returns names without repetitions.
func distinct(names []string) (all []string) {
	for _, name := range names {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// requestParser is the visitor of a request body.
type requestParser struct {
	body    []byte
	request Request
	err     error
	seen    [maxWatched]uint64 // by depth, a bit for each member that has a node

	stored   string         // the name of a stored prompt
	others   []string       // models beside the request's own
	named    bool           // the object among these names one
	caps     [maxCaps]int64 // in the order of the format
	otherCap int64          // the highest of the other models
	rawStart int
	source   source // that is being read
}

const (
	maxCaps    = 8 // paths to a cap of one format
	maxWatched = 8 // levels with members that may stand once
)

// source is an object that holds a file, in base64 or as plain text. None is in another one.
type source struct {
	data   weight
	size   int64 // bytes of its data
	base64 bool
	other  bool // it states another type
}

// document reads a body that is one JSON document.
func (p *requestParser) document(f *Format) error {
	s := jsonscan.New(f.request, p)
	s.Pieces(p.piece)
	s.Scan(p.body)
	switch complete := s.Finish(); {
	case p.err != nil:
		return p.err
	case !complete:
		return fmt.Errorf("%w: it is not one JSON document, or nests too deeply", ErrRequest)
	}
	return nil
}

func (p *requestParser) fail(s *jsonscan.Scanner, format string, args ...any) {
	p.err = fmt.Errorf("%w: "+format, append([]any{ErrRequest}, args...)...)
	s.Stop()
}

// Key refuses a member that comes twice, since servers disagree on which one counts. It refuses one
// in another case, since only some servers ignore it.
func (p *requestParser) Key(s *jsonscan.Scanner, n *node) {
	if s.Depth() > maxWatched {
		return
	}
	seen, key := &p.seen[s.Depth()-1], string(s.Text())
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

// Begin implements jsonscan.Visitor.
func (p *requestParser) Begin(s *jsonscan.Scanner, n *node, kind byte) {
	if n.Watch && s.Depth() <= maxWatched {
		p.seen[s.Depth()-1] = 0
	}
	p.request.at.set(n.Role, place{from: s.Offset(), kind: kind})
	switch n.Role {
	case askBody:
		if kind != '{' {
			p.fail(s, "it is no object")
		}
	case askOptions:
		if kind != '{' {
			p.fail(s, "%s is no object", n.Key)
		}
	case askModel, askStream, askUsage, askMaxOutput, askChoices:
		p.fail(s, "%s has the wrong type", n.Key)
	case askModels:
		p.named = false
	case askUnit:
		p.request.use(n.Name, 1)
	case readRaw:
		p.rawStart = s.Offset()
	case readSource:
		p.source = source{}
	}
}

// End implements jsonscan.Visitor.
func (p *requestParser) End(s *jsonscan.Scanner, n *node) {
	q := &p.request
	switch n.Role {
	case askModels:
		if n.Key == "" && !p.named {
			p.fail(s, "one of the other models has no name")
		}
	case readRaw:
		raw := p.body[p.rawStart : s.Offset()+1]
		q.PromptBytes += int64(len(raw))
		q.weight.add(raw)
		q.weight.end()
	case readSource:
		if at := &p.source; at.size > 0 && at.base64 && !at.other {
			q.Files++
		} else {
			q.PromptBytes += at.size
			q.weight.sum += at.data.sum
		}
	}
}

// Scalar implements jsonscan.Visitor.
func (p *requestParser) Scalar(s *jsonscan.Scanner, n *node, kind byte) {
	q := &p.request
	q.at.set(n.Role, place{from: s.Start(), to: s.Offset(), kind: kind})
	switch n.Role {
	case askBody:
		p.fail(s, "it is no object")
	case askModel:
		q.Model = p.model(s, kind)
	case askPrompt:
		p.stored = p.model(s, kind)
	case askModels:
		if kind != 'n' && len(p.others) <= maxModels {
			p.others, p.named = append(p.others, p.model(s, kind)), true
		}
	case askStream:
		if kind != 'n' {
			q.Stream = p.flag(s, n, kind)
		}
	case askUsage:
		q.AsksUsage = p.flag(s, n, kind)
	case askOptions:
		if kind != 'n' {
			p.fail(s, "%s is no object", n.Key)
		}
	case askMaxOutput:
		p.caps[min(n.Order, maxCaps)-1] = p.limit(s, n, kind)
	case askOtherMaxOutput:
		p.otherCap = max(p.otherCap, p.limit(s, n, kind))
	case askChoices:
		q.Choices = max(q.Choices, p.count(s, n, kind, maxChoices))
	default:
		p.prompt(s, n, kind)
	}
}

// piece weighs a piece of a string.
func (p *requestParser) piece(n *node, b []byte) {
	switch n.Role {
	case readText, readTokens, readRaw:
		p.request.weight.add(b)
	case readSourceData:
		p.source.data.add(b)
	}
}

// prompt counts a value that the model reads, or that tells how.
func (p *requestParser) prompt(s *jsonscan.Scanner, n *node, kind byte) {
	q := &p.request
	switch {
	case n.Role == readTokens && kind == '0':
		q.PromptBytes += s.Size()
		q.weight.sum += weightOfToken
		return
	case kind != '"':
		return
	}
	switch n.Role {
	case askLabel:
		q.Labels = withLabel(q.Labels, n.Name, s.Text())
	case askTool:
		q.useTool(string(s.Text()))
	case askImageModel:
		q.ImageModel = string(s.Text())
	case readText, readTokens, readRaw:
		q.PromptBytes += s.Size()
		q.weight.end()
	case readFile:
		if s.Size() > 0 {
			q.Files++
		}
	case readSourceType:
		if string(s.Text()) == "base64" {
			p.source.base64 = true
		} else {
			p.source.other = true
		}
	case readSourceData:
		p.source.size += s.Size()
		p.source.data.end()
	}
}
