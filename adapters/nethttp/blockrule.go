package nethttp

import (
	"fmt"
	"net/http"

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
// logins run at a time by a Slot beside it. A request that has waited for its slot, for
// Config.MaxDelay or for the id of a Replay is asked about the block again. A strike counts before
// the slot and the id are free.
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

func (b *BlockRule) check(i int, names map[string]bool, fault faultFunc) {
	at := fmt.Sprintf("Blocks[%d]", i)
	if checkPolicy(at+".Policy", b.Policy, names, fault) {
		_, ok := b.Policy.Algorithm().(core.Block)
		fault.when(!ok, "%s.Policy has the algorithm %T: it must be a core.Block", at, b.Policy.Algorithm())
	}
	fault.when(b.Key == nil, "%s.Key is nil: say whom to block, such as keyfunc.RemoteIP()", at)
	b.NoKey.check(at+".NoKey", fault)
	fault.when(b.Trap == nil && !b.Denied && b.Strikes == nil && b.Forget != nil,
		"%s forgets strikes, and nothing is a strike", at)
}

// block is a BlockRule at its Gate.
type block struct {
	BlockRule
	list *core.Blocklist
}
