package nethttp

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
)

// denyUnread decides on a request whose client sends the body only once it is asked for it. It denies
// it if the charges that do not depend on the body do, and reports whether it has decided.
func (x *Exchange) denyUnread(r *http.Request) (decided bool) {
	if !expectsContinue(r) || !x.guard.readsBody() {
		return false
	}
	charges, err := x.deriveRules(r, slices.Clone(x.blocks), true)
	for err == nil && x.denies(r, charges) {
		if !x.guard.follows || !x.follow(charges) {
			return true
		}
	}
	x.decision = core.Decision{}
	x.charged, x.sooner = x.charged[:len(x.blocks)], nil
	return false
}

// readsBody reports whether the guard may read a body before it decides.
func (g *Guard) readsBody() bool {
	reads := func(rule Rule) bool { return rule.readsBody() }
	return g.cfg.BufferBody > 0 || slices.ContainsFunc(g.cfg.Rules, reads)
}

// denies reports whether the charges deny the request, and sets the decision if they do. They spend
// nothing.
func (x *Exchange) denies(r *http.Request, charges []core.Charge) bool {
	ctx, cfg := r.Context(), &x.guard.cfg
	if d, err := cfg.Gate.Peek(ctx, charges...); err != nil || d.Allowed {
		return false
	}
	// What fits after a delay does not deny. A denial by Peek would be no denial in metrics.
	reservation, d, err := cfg.Gate.Reserve(core.WithForeground(ctx), cfg.MaxDelay, charges...)
	if err != nil || reservation != nil {
		_ = reservation.Cancel(ctx) // on failure the cost stays spent
		return false
	}
	x.decision = d
	return true
}

// expectsContinue reports whether the first Read of the body asks the client for it. A request of
// HTTP/2 does not tell.
func expectsContinue(r *http.Request) bool {
	return hasBody(r) && strings.EqualFold(r.Header.Get("Expect"), "100-continue")
}
