package llm

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
)

// finish finds out what the exchange used, learns from it, and settles the running charges. The
// guard settles the first charge.
func (x *exchange) finish(ctx context.Context) {
	outcome, used := x.outcome()
	x.event = ResponseEvent{
		Request: requestOf(&x.request), Outcome: outcome, Estimate: x.estimate, Usage: used,
		Indebted: x.indebted, Drained: x.meter.cfg.Abort == AbortDrain && (x.gone || left(ctx)),
	}
	if outcome == OutcomeReported {
		x.learn(used)
	}
	x.settleExtra(ctx)
}

func (x *exchange) outcome() (Outcome, Usage) {
	seen := x.estimate
	seen.Output = x.shown()
	if x.tap == nil {
		switch {
		case x.late:
			return OutcomeCut, seen // the server may have read the prompt
		case x.status != 0 || x.panicked:
			return OutcomeFailed, Usage{}
		}
		return OutcomeUnreported, x.estimate // an empty response
	}
	o := x.tap.Response()
	if o.Known {
		return OutcomeReported, Usage(o.Usage)
	}
	if o.InputKnown {
		seen.Input, seen.CacheRead, seen.CacheWrite = o.Usage.Input, o.Usage.CacheRead, o.Usage.CacheWrite
	}
	if x.panicked || x.ended || o.Failed || !x.read(&o) {
		return OutcomeCut, seen
	}
	seen.Output = max(seen.Output, x.estimate.Output)
	if x.tap.Unread() { // nothing was seen of it, so it counts as its cap
		seen.Output = max(seen.Output, x.guess.output)
	}
	return OutcomeUnreported, seen
}

// read reports whether a response without usage was read to its end, or could not be read.
func (x *exchange) read(o *wire.Response) bool {
	return o.Complete || o.Broken || x.empty && !x.late || x.tap.Encoded()
}

// learn corrects the ratios of the model.
func (x *exchange) learn(used Usage) {
	l := x.meter.learnt(x.request.Model)
	if !x.request.Files { // their tokens are not in the bytes
		prompt := used
		prompt.Output = 0
		l.input.learn(prompt.Total(), x.guess.input, mostInput)
	}
	l.output.learn(used.Output, x.guess.output, mostOutput)
	if o := x.tap.Response(); x.request.Stream {
		l.text.learn(used.Output, o.TextTokens(), mostOutput)
	}
}

// observe reports the exchange of an admitted request.
func (x *exchange) observe(r *http.Request) {
	if x.settled != nil && x.meter.cfg.Observe != nil {
		x.event.HTTP = r
		x.meter.cfg.Observe(r.Context(), &x.event)
	}
}
