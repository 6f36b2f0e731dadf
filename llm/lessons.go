package llm

import (
	"math"
	"sync"
)

// lessons are the ratios that this process has learnt of one model.
type lessons struct {
	input  ratio // tokens of the prompt to the guess
	output ratio // tokens of the output to the cap
}

// learnt returns the lessons of the model. Models that have no entry share theirs, so that clients
// cannot invent any number of them.
func (x *call) learnt() *lessons {
	if e := x.find(x.request.Model); e != nil {
		return &e.lessons
	}
	return &x.meter.lessons
}

// learn corrects the ratios of the model.
func (x *call) learn(used Usage) {
	if len(x.request.Models) > 1 {
		return // another one may have answered
	}
	l := x.learnt()
	if x.request.Files == 0 { // PromptBytes has no true size of files
		l.input.learn(used.prompt().Total(), x.guess.input, mostInput)
	}
	l.output.learn(used.Output, x.guess.output, mostOutput)
}

// ratio is the number of actual tokens for a guessed one. The zero value is 1. It is safe for
// concurrent use.
type ratio struct {
	mu              sync.Mutex
	actual, guessed float64
}

const (
	// forget is the factor by which each request lowers the weight of the earlier ones.
	forget = 15.0 / 16
	// mostOutput bounds the ratio of one request's output, and its inverse. mostInput bounds that
	// of its input, which is known more closely. Without them a client could teach others an absurd
	// estimate.
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

// of returns the tokens to expect for n guessed ones: at least 1 if n is at least 1.
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
