package nethttp

import (
	"context"
	"net/http"
	"slices"

	"github.com/headgate/headgate/core"
)

// deriveBlocks sets the charges that ask whether the request's keys are blocked.
func (x *Exchange) deriveBlocks(r *http.Request) error {
	for _, by := range x.guard.blocks {
		b := by.block
		key, ok, err := x.ruleKey(b.Policy.Name(), b.Key, b.NoKey, r)
		if err != nil {
			return err
		}
		if ok {
			x.blocks = append(x.blocks, core.Charge{Policy: b.Policy, Key: key, Cost: core.NoCost})
			x.charged = append(x.charged, charged{by: by})
		}
	}
	return nil
}

// trap decides on a request that some Trap catches, and reports whether one does.
func (x *Exchange) trap(r *http.Request) (caught bool, err error) {
	for _, by := range x.guard.blocks {
		b := by.block
		if b.Trap == nil || !b.Trap(r) {
			continue
		}
		x.refuse(http.StatusForbidden)
		at := slices.IndexFunc(x.charged, func(c charged) bool { return c.by.block == b })
		if at < 0 {
			return true, nil // it has no key
		}
		x.charged = x.charged[at : at+1]
		x.decision, err = x.guard.cfg.Gate.Decide(r.Context(), strikeOf(x.blocks[at]))
		if !x.decision.Allowed {
			x.status = 0 // it is blocked, or nobody can tell
		}
		x.decision.Allowed = false
		return true, err
	}
	return false, nil
}

// deniedByRule reports whether a rule denies the request, and not a block or a cap.
func (x *Exchange) deniedByRule() bool { return x.denied != notDenied && x.denied != blocked }

// strike strikes the keys of a request that a rule denies.
func (x *Exchange) strike(r *http.Request) {
	for i, c := range x.blocks {
		if x.charged[i].by.block.Denied {
			_, _ = x.guard.cfg.Gate.Decide(r.Context(), strikeOf(c)) // core.Config.Observe tells of errors
		}
	}
}

// strikeOf returns a strike of the key that a charge asks about.
func strikeOf(c core.Charge) core.Charge {
	c.Cost = 1
	return c
}

// askBlocks asks again, after a wait, whether the client is blocked.
func (x *Exchange) askBlocks(ctx context.Context) (core.Decision, error) {
	if len(x.blocks) == 0 {
		return core.Decision{Allowed: true}, nil
	}
	return x.guard.cfg.Gate.Decide(ctx, x.blocks...)
}
