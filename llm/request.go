package llm

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm/internal/wire"
)

// ErrRequest is the error of a request body that is malformed, or that two servers could read in
// different ways. Its text names no part of the body.
var ErrRequest = wire.ErrRequest

// Request is what a request body asks for.
type Request struct {
	// Format is the format of the body and of the response.
	Format Format
	// Model is the name of the model as the client spells it, 1 to 256 bytes of UTF-8, or the one
	// that Config.Downgrade has chosen. If several may answer, it is the first; see ModelsFrom.
	Model string
	// Asked is the model that the client asked for, if Config.Downgrade has chosen another one.
	// Otherwise it is empty.
	Asked string
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
	// Estimate is what the request is expected to use. It is zero in Config.Estimate.
	Estimate Usage
}

// RequestFrom returns what a request asks for, given its context. It knows every request that a
// Meter has read: in the functions of its guard and budgets, such as Key, Skip, Cost and Plan, in
// the handler, and in Config.Observe. It returns false for any other request.
func RequestFrom(ctx context.Context) (q Request, ok bool) {
	x := callOf(ctx)
	if x == nil {
		return Request{}, false
	}
	return x.asks(), true
}

// ModelsFrom returns every model that may answer a request, given its context: Request.Model, one in
// the body beside that in the path, and those of models and fallbacks. It returns nil for a request
// that no Meter has read.
func ModelsFrom(ctx context.Context) []string {
	x := callOf(ctx)
	if x == nil {
		return nil
	}
	return slices.Clone(x.request.Models)
}

// asks returns what the call's request asks for.
func (x *call) asks() Request {
	q := requestOf(&x.request)
	q.Asked, q.Estimate = x.replaced, x.estimate
	return q
}

func requestOf(q *wire.Request) Request {
	return Request{
		Format: Format{q.Format}, Model: q.Model, Stream: q.Stream, MaxOutput: q.MaxOutput,
		Choices: q.Choices, PromptBytes: q.PromptBytes, Files: q.Files,
	}
}

// unknown is the name of every model that has none in the configuration: clients may invent any
// number of these.
const unknown = "*"

// model returns the name of the model, or unknown, also if any of several may answer.
func (x *call) model() string {
	if len(x.request.Models) > 1 || !x.meter.cfg.names(x.request.Model) {
		return unknown
	}
	return x.request.Model
}

// onlyOthers reports whether all models that may answer have a name, and none is one of these.
func (x *call) onlyOthers(names []string) bool {
	return !slices.ContainsFunc(x.request.Models, func(model string) bool {
		return slices.Contains(names, model) || !x.meter.cfg.names(model)
	})
}

// ModelKey is a keyfunc.Func whose key is the model of a request. Models that have no name in
// Config.Models and in the files of Config.Prices share the key "*", so that no client can invent
// keys. A request that names several models has that key too; see ModelsFrom. For a key of a tenant
// and a model, use keyfunc.Join, or ModelKey alone below nethttp.Config.Scope.
//
// A request that no Meter has read has no key. One for Guard.Usage is such a request: with
// nethttp.NoKeySkip its answer leaves the rule out. It is refused if a nethttp.Cap has this key.
func ModelKey(r *http.Request) (string, error) {
	x := callOf(r.Context())
	if x == nil {
		return "", fmt.Errorf("llm: %w: no Meter has read the request", keyfunc.ErrNoKey)
	}
	return x.model(), nil
}

// UnlessModel returns a func for the Skip of a nethttp.Rule, of a nethttp.Slot or of a Budget. It
// skips the requests that name other models only. It skips no request for a model that has no name in
// Config.Models and Prices, because that may be any, and none that no Meter has read. Nothing tells of a name that is
// misspelt; New checks those of Budget.Models.
func UnlessModel(names ...string) func(*http.Request) bool {
	names = slices.Clone(names)
	return func(r *http.Request) bool {
		x := callOf(r.Context())
		return x != nil && x.onlyOthers(names)
	}
}

// UnlessStream is a func for the Skip of a nethttp.Rule, of a nethttp.Slot or of a Budget. It skips
// the requests that do not ask for a stream. It skips none that no Meter has read.
func UnlessStream(r *http.Request) bool {
	x := callOf(r.Context())
	return x != nil && !x.request.Stream
}
