package llm

import (
	"cmp"
	"maps"
	"net/http"

	"github.com/headgate/headgate/llm/internal/wire"
)

// guess is what a request would use if its model's ratios were 1.
type guess struct{ input, output int64 }

// guessOf returns the tokens in the bytes of the prompt, and the cap on the output.
func (x *exchange) guessOf(q *wire.Request) guess {
	limit := x.meter.cfg.MaxOutput
	if model := x.models[q.Model]; model != nil {
		limit = cmp.Or(model.MaxOutput, limit)
	} else if model := x.find(q.Model); model != nil && model.MaxOutput > 0 {
		limit = min(limit, model.MaxOutput) // a file knows what a model can write
	}
	if q.MaxOutput > 0 {
		limit = min(limit, q.MaxOutput)
	}
	if !q.Format.HasOutput() {
		limit = 0
	}
	return guess{input: q.PromptTokens(), output: limit * q.Choices}
}

// expected returns the bill of a request that is expected to use that much.
func (x *exchange) expected(u Usage) Bill { return Bill{Usage: u, Labels: x.request.Labels} }

// labels returns those of a response that has not stated its usage: the client may have asked for
// what the response does not say.
func (x *exchange) labels(o *wire.Response) map[string]string {
	if len(o.Labels) == 0 {
		return x.request.Labels
	}
	all := maps.Clone(o.Labels)
	for name, value := range x.request.Labels {
		if _, stated := all[name]; !stated {
			all[name] = value
		}
	}
	return all
}

// estimate returns what a request is expected to use.
func (m *Meter) estimate(r *http.Request, x *exchange, body []byte) (Usage, error) {
	if m.cfg.Estimate != nil {
		u, err := m.cfg.Estimate(r, requestOf(&x.request), body)
		return u.positive(), err
	}
	l := m.learnt(x.request.Model)
	return Usage{
		Input:  l.input.of(x.guess.input),
		Output: min(x.guess.output, l.output.of(x.guess.output)),
	}, nil
}
