package llm

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/headgate/headgate/llm/internal/wire"
)

// guess is what a request would use if its model's ratios were 1.
type guess struct {
	input, output int64
	pieces        map[string]int64 // that a model of the request has a price for
}

// guessOf returns the tokens in the bytes of the prompt, and the cap on the output.
func (x *call) guessOf(q *wire.Request) guess {
	most := int64(0)
	for _, name := range q.Models {
		if q.Format.HasOutput() {
			most = max(most, x.outputOf(name, q.MaxOutput))
		}
	}
	return guess{input: q.PromptTokens(), output: most * q.Choices, pieces: x.pieces(q.Units, q.Labels)}
}

// outputOf returns the most output of one answer of a model: the request's own cap, or what is usual
// without one, and no more than the model can write.
func (x *call) outputOf(name string, stated int64) int64 {
	usual := x.meter.cfg.MaxOutput
	model := x.find(name)
	if model == nil || model.MaxOutput == 0 {
		return cmp.Or(stated, usual)
	}
	if model == x.models[name] {
		usual = model.MaxOutput
	}
	return min(cmp.Or(stated, usual), model.MaxOutput)
}

// expected returns the bill of a request that is expected to use that much.
func (x *call) expected(u Usage) Bill {
	return Bill{Usage: u, Units: x.guess.pieces, Labels: x.request.Labels}
}

// assume adds to a bill the pieces that a response may have used and has not stated.
func (x *call) assume(b *Bill) {
	for _, name := range slices.Sorted(maps.Keys(x.guess.pieces)) {
		x.assumeUnit(b, name)
	}
}

func (x *call) assumeUnit(b *Bill, name string) {
	n := x.guess.pieces[name]
	if n == 0 || b.Units[name] > 0 {
		return
	}
	units := map[string]int64{name: n}
	maps.Copy(units, b.Units)
	b.Units, b.Unread = units, append(slices.Clip(b.Unread), "estimate of "+name)
}

// labels returns those of a response that has not stated its usage: the client may have asked for
// what the response does not say.
func (x *call) labels(o *wire.Response) map[string]string {
	all := maps.Clone(x.request.Labels)
	if all == nil {
		return o.Labels
	}
	maps.Copy(all, o.Labels)
	return all
}

// estimate returns what a request is expected to use.
func (m *Meter) estimate(r *http.Request, x *call, body []byte) (Usage, error) {
	if m.cfg.Estimate != nil {
		u, err := m.cfg.Estimate(r, requestOf(&x.request), body)
		return u.positive(), err
	}
	l := x.learnt()
	return Usage{
		Input:  l.input.of(x.guess.input),
		Output: min(x.guess.output, l.output.of(x.guess.output)),
	}, nil
}
