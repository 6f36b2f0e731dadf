package llm

import (
	"math"
	"net/http"
	"sync"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
)

// guess is what a request would use if its model's ratios were 1.
type guess struct{ input, output int64 }

// guess returns what is known before anything is learnt: the bytes of the prompt, and the cap on
// the output.
func (m *Meter) guess(q *wire.Request, model *Model) guess {
	limit := m.cfg.MaxOutput
	if model.MaxOutput > 0 {
		limit = model.MaxOutput
	}
	if q.MaxOutput > 0 {
		limit = min(limit, q.MaxOutput)
	}
	return guess{input: q.PromptTokens(), output: limit * q.Choices}
}

// estimate returns what a request is expected to use.
func (m *Meter) estimate(r *http.Request, x *exchange, body []byte) (Usage, error) {
	if m.cfg.Estimate != nil {
		u, err := m.cfg.Estimate(r, requestOf(&x.request), body)
		return Usage{max(0, u.Input), max(0, u.CacheRead), max(0, u.CacheWrite), max(0, u.Output)}, err
	}
	l := m.learnt(x.request.Model)
	return Usage{Input: l.input.of(x.guess.input), Output: min(x.guess.output, l.output.of(x.guess.output))}, nil
}

// lessons are the ratios of a model. They are learnt by this process alone.
type lessons struct {
	input  ratio // of the tokens of the prompt to the guess
	output ratio // of the tokens of the output to the cap
	text   ratio // of the tokens of the output to what was seen of a stream
}

// learnt returns the lessons of a model. Models that are not in Config.Models share theirs, so that
// clients cannot make up any number of them.
func (m *Meter) learnt(model string) *lessons {
	if l, ok := m.lessons[model]; ok {
		return l
	}
	return m.lessons[""]
}

// ratio is what is learnt of actual tokens for one that was guessed. The zero value is 1. It is safe
// for concurrent use.
type ratio struct {
	mu              sync.Mutex
	actual, guessed float64
}

const (
	// forget is the weight of what was learnt before, for each request that follows.
	forget = 15.0 / 16
	// mostOutput bounds the ratio of one request's output, and its inverse. mostInput bounds that of its
	// input, which is known more closely. So no client teaches others an absurd estimate.
	mostOutput, mostInput = 16.0, 4.0
)

func (r *ratio) learn(actual, guessed int64, most float64) {
	if actual <= 0 || guessed <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	// One response that states a wrong number must not outweigh those that follow.
	a, g := float64(actual), float64(guessed)
	r.actual = r.actual*forget + min(max(a, g/most), g*most)
	r.guessed = r.guessed*forget + g
}

// of returns the tokens to expect where n were guessed, at least 1 for a guess of at least 1.
func (r *ratio) of(n int64) int64 {
	if n <= 0 {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.guessed == 0 {
		return n
	}
	return int64(math.Ceil(float64(n) * r.actual / r.guessed))
}
