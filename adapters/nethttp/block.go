package nethttp

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// BlockRule keeps clients that misbehave away for a while. Before the rules spend anything, the
// Guard looks in the same round trip whether the key is blocked. If it is, the Guard refuses the
// request with 429, the problem type abnormal-usage-detected, and in Retry-After the rest of the
// block.
//
// What counts as a strike is up to Trap, Denied and Strikes. Requests that run when the block
// begins go on, and so do those that were admitted before their like had failed: limit how many
// logins run at a time by a Rule beside it.
type BlockRule struct {
	// Policy is one whose algorithm is a core.Block. It is required.
	Policy *core.Policy
	// Key derives whom to block, such as keyfunc.RemoteIP or the name of the login. It is required.
	Key keyfunc.Func
	// NoKey says what happens to a request without a key. The zero value refuses it.
	NoKey NoKey
	// Trap returns true for a request that no honest client makes, such as one for /wp-login.php. Such
	// a request is a strike and is refused with 403. It spends nothing under the rules. Nil traps
	// none.
	Trap func(*http.Request) bool
	// Denied makes each request that a rule of this Guard denies a strike. So a client that does not
	// heed its limit is blocked. With Strikes of 1 the first denial blocks.
	Denied bool
	// Strikes returns how many strikes a response is worth, given its status, as StrikeOn does. Nil is
	// none.
	Strikes func(r *http.Request, status int) int64
	// Forget returns true for a response that shows that the client is honest, such as a login that
	// succeeded: its strikes are forgotten. A block is not lifted, and the next one is as long as it
	// would have been. Forget sees every response of the Guard, so look at the request too, or guard
	// the route of the login alone: otherwise a client clears its strikes by asking for a page. Nil
	// forgets none.
	Forget func(r *http.Request, status int) bool
	// HideRetryAfter omits Retry-After for a blocked client, which would learn when to come back.
	HideRetryAfter bool
}

// StrikeOn is a BlockRule.Strikes of one strike for each response with one of these statuses, such
// as 401 and 403.
func StrikeOn(statuses ...int) func(r *http.Request, status int) int64 {
	on := statusIn(statuses)
	return func(r *http.Request, status int) int64 {
		if on(r, status) {
			return 1
		}
		return 0
	}
}

// ForgetOn is a BlockRule.Forget for responses with one of these statuses, such as 200. It is for a
// Guard of one route, such as POST /login.
func ForgetOn(statuses ...int) func(r *http.Request, status int) bool { return statusIn(statuses) }

// statusIn reports whether a response has one of the statuses.
func statusIn(statuses []int) func(*http.Request, int) bool {
	statuses = slices.Clone(statuses)
	return func(_ *http.Request, status int) bool { return slices.Contains(statuses, status) }
}

func (b *BlockRule) check(i int, names map[string]bool, fault faultFunc) {
	at := fmt.Sprintf("Blocks[%d]", i)
	if checkPolicy(at, b.Policy, names, fault) {
		if _, ok := b.Policy.Algorithm().(core.Block); !ok {
			fault("%s.Policy has the algorithm %T: it must be a core.Block", at, b.Policy.Algorithm())
		}
	}
	if b.Key == nil {
		fault("%s.Key is nil: say whom to block, such as keyfunc.RemoteIP()", at)
	}
	b.NoKey.check(at+".NoKey", fault)
	if b.Trap == nil && !b.Denied && b.Strikes == nil && b.Forget != nil {
		fault("%s forgets strikes, and nothing is a strike", at)
	}
}

// blockOf returns the BlockRule of a result, or nil.
func (a *Admission) blockOf(result int) *BlockRule {
	if c := &a.charged[result]; c.rule < 0 {
		return &a.guard.cfg.Blocks[-1-c.rule]
	}
	return nil
}

// blocks iterates over the BlockRules that refuse the request as one of a blocked client.
func (a *Admission) blocks() iter.Seq[*BlockRule] {
	return func(yield func(*BlockRule) bool) {
		if len(a.guard.cfg.Blocks) == 0 || a.status != http.StatusTooManyRequests {
			return
		}
		for i := range a.denials() {
			if b := a.blockOf(i); b != nil && !yield(b) {
				return
			}
		}
	}
}

func (a *Admission) blocked() bool {
	for range a.blocks() {
		return true
	}
	return false
}

// hidesBlock reports whether a blocked client is not told for how long.
func (a *Admission) hidesBlock() bool {
	for b := range a.blocks() {
		if b.HideRetryAfter {
			return true
		}
	}
	return false
}

// trap decides on a request that some Trap catches, and reports whether one does.
func (a *Admission) trap(r *http.Request, blocks []core.Charge) (caught bool, err error) {
	for rule := range a.guard.cfg.Blocks {
		b := &a.guard.cfg.Blocks[rule]
		if b.Trap == nil || !b.Trap(r) {
			continue
		}
		a.refuse(http.StatusForbidden)
		i := slices.IndexFunc(a.charged, func(c charged) bool { return c.rule == -1-rule })
		if i < 0 {
			return true, nil // it has no key
		}
		blocks[i].Cost = 1
		a.charged = a.charged[i : i+1]
		a.decision, err = a.guard.cfg.Gate.Decide(r.Context(), blocks[i])
		if !a.decision.Allowed {
			a.status = 0 // it is blocked, or nobody can tell
		}
		a.decision.Allowed = false
		return true, err
	}
	return false, nil
}

// strikeDenied strikes the keys of a request that a rule denies.
func (a *Admission) strikeDenied(r *http.Request, charges []core.Charge) {
	if a.status != http.StatusTooManyRequests || a.full != nil || a.blocked() {
		return
	}
	for i := range a.blockKeys {
		if b := a.blockOf(i); b != nil && b.Denied {
			strike := charges[i]
			strike.Cost = 1
			_, _ = a.guard.cfg.Gate.Decide(r.Context(), strike) // core.Config.Observe tells of errors
		}
	}
}

// forget forgets the strikes of a client whose response shows that it is honest.
func (a *Admission) forget(r *http.Request, status int) {
	for i, key := range a.blockKeys {
		b := a.blockOf(i)
		if b.Forget == nil || a.decision.At(i).Used == 0 || !b.Forget(r, status) {
			continue
		}
		if list, err := core.NewBlocklist(a.guard.cfg.Gate, b.Policy); err == nil {
			_ = list.Forget(context.WithoutCancel(r.Context()), key) // core.Config.Observe sees errors
		}
	}
}
