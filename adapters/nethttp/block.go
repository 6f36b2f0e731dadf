package nethttp

import (
	"net/http"
	"slices"

	"github.com/headgate/headgate/core"
)

// deriveBlocks appends charges that ask whether the request's keys are blocked.
func (x *Exchange) deriveBlocks(r *http.Request, charges []core.Charge) ([]core.Charge, error) {
	for _, by := range x.guard.blocks {
		b := by.block
		key, ok, err := x.ruleKey(b.Policy.Name(), b.Key, b.NoKey, r)
		if err != nil {
			return nil, err
		}
		if ok {
			charges = append(charges, core.Charge{Policy: b.Policy, Key: key, Cost: core.NoCost})
			x.charged = append(x.charged, charged{by: by})
			x.blockKeys = append(x.blockKeys, key)
		}
	}
	return charges, nil
}

// trap decides on a request that some Trap catches, and reports whether one does.
func (x *Exchange) trap(r *http.Request, blocks []core.Charge) (caught bool, err error) {
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
		blocks[at].Cost = 1
		x.charged = x.charged[at : at+1]
		x.decision, err = x.guard.cfg.Gate.Decide(r.Context(), blocks[at])
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
	for i, key := range x.blockKeys {
		if b := x.charged[i].by.block; b.Denied {
			strike := core.Charge{Policy: b.Policy, Key: key, Cost: 1}
			_, _ = x.guard.cfg.Gate.Decide(r.Context(), strike) // core.Config.Observe tells of errors
		}
	}
}
