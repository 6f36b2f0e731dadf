package llm

import (
	"context"
	"net/http"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// finish determines what the call used, learns from it, and settles the running charges. The
// guard settles the first charge.
func (x *call) finish(ctx context.Context) {
	x.pay()
	outcome, bill := x.outcome()
	x.event = ResponseEvent{
		Request: x.asks(), Outcome: outcome, Estimate: x.estimate, Bill: bill,
		Indebted: x.indebted, Drained: x.meter.cfg.Abort == AbortDrain && (x.gone || left(ctx)),
	}
	if outcome == OutcomeReported {
		x.learn(bill.Usage)
	}
	if x.priced {
		x.event.Cost, x.event.Unknown = x.cost(&bill)
	}
	x.settleRunning(ctx)
}

// outcome returns what the request used, and how that was found.
func (x *call) outcome() (Outcome, Bill) {
	if x.tap == nil {
		return x.outcomeOfNothing()
	}
	o := x.tap.Response()
	bill := billOf(&o, x.request.Models)
	seen := &bill.Usage
	switch {
	case o.Known:
		if cost, _ := x.cost(&bill); cost == 0 { // a model that is billed by the piece may state tokens
			x.assumeUnit(&bill, x.request.Format.Unit())
		}
		return OutcomeReported, bill
	case o.Refused():
		return OutcomeFailed, Bill{Model: x.request.Model}
	}
	bill.Labels = x.labels(&o)
	x.assume(&bill)
	if !o.InputKnown {
		stated := bill.Usage
		bill.Usage = x.estimate
		seen.AudioOut = max(seen.AudioOut, stated.AudioOut)
		seen.ImageOut = max(seen.ImageOut, stated.ImageOut)
		seen.Reasoning = max(seen.Reasoning, stated.Reasoning)
	}
	if !o.Complete {
		bill.Stated = Money{} // it is not of the whole response
	}
	seen.Output = x.seen(&o)
	if x.aborted || x.ended || o.Failed || !x.read(&o) {
		return OutcomeCut, bill
	}
	if o.OutputKnown { // and not its input
		return OutcomeUnreported, bill
	}
	seen.Output = max(seen.Output, x.estimate.Output)
	if x.tap.Unread() { // no output was seen, so it counts as its cap
		seen.Output = max(seen.Output, x.guess.output)
	}
	return OutcomeUnreported, bill
}

// outcomeOfNothing is outcome for a response of which the Meter has seen no part.
func (x *call) outcomeOfNothing() (Outcome, Bill) {
	bill := x.expected(x.estimate)
	bill.Model = x.request.Model
	switch {
	case x.late:
		bill.Usage.Output = 0
		return OutcomeCut, bill // the server may have read the prompt
	case x.status != 0 && x.status != http.StatusSwitchingProtocols, x.aborted:
		return OutcomeFailed, Bill{Model: x.request.Model}
	}
	return OutcomeUnreported, bill
}

// read reports whether a response without usage was read to its end, or could not be read.
func (x *call) read(o *wire.Response) bool {
	return o.Complete || o.Broken || x.empty && !x.late || x.tap.Encoded()
}

// settleRunning settles the running charges, so that all charges of each budget add up to what was
// used. It leaves in x.settled what the first charge keeps.
func (x *call) settleRunning(ctx context.Context) {
	budgets := x.meter.cfg.Budgets
	x.settled = make([]int64, len(budgets))
	for i, b := range budgets {
		x.settled[i] = x.units(b.Policy.Unit(), &x.event.Bill)
	}
	at := make(map[*core.Policy]int, len(budgets))
	for i, b := range budgets {
		at[b.Policy] = i
	}
	var all sync.WaitGroup
	for _, e := range x.running {
		actual := make([]int64, len(e.charges))
		for j, c := range e.charges {
			i := at[c.Policy]
			actual[j] = min(c.Cost, max(0, x.settled[i]-x.paid[i])) // what the first one has not paid for
			x.settled[i] -= actual[j]
		}
		all.Go(func() {
			_ = e.reservation.Settle(ctx, actual...) // core.Config.Observe receives a failure
		})
	}
	all.Wait()
}

// observe reports a request that was admitted, or whose client left before.
func (x *call) observe(r *http.Request) {
	switch {
	case x.meter.cfg.Observe == nil:
		return
	case x.left:
		x.event = ResponseEvent{
			Request: x.asks(), Outcome: OutcomeLeft, Estimate: x.estimate,
		}
	case x.settled == nil:
		return
	}
	x.event.HTTP = r
	x.meter.cfg.Observe(r.Context(), &x.event)
}
