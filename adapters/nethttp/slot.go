package nethttp

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// Slot caps how many requests run at a time, in addition to the rules of a Guard. A request
// that finds no slot spends nothing under the rules, and one that a rule denies holds no slot; see
// semaphore.Semaphore.Admit. While a request waits for a slot, its costs are spent.
//
// The context of an admitted request is that of its lease, which is cancelled with the cause
// semaphore.ErrLeaseLost if the lease is lost. The slot is free when the handler has returned or
// panicked, also after a hijack, unless the handler has detached it; see LeaseFromContext.
//
// To shut down, close the Gate before the server. Close refuses new and queued requests with 503,
// and renews the leases of running ones until they finish.
type Slot struct {
	// Semaphore keeps the slots. It is required, and must be of Config.Gate.
	Semaphore *semaphore.Semaphore
	// Caps are the caps, outermost first, such as tenant and user. There are 1 to 7. A request
	// takes a slot of every cap, or none. The keys stand below Config.Scope, each below those of
	// the caps before it.
	Caps []Cap
	// MaxWait is the longest time for which a request waits in the queue. Zero refuses a request
	// without a slot immediately. See Config.BufferBody for clients that leave the queue, and
	// Config.MaxDelay for a server with a WriteTimeout.
	MaxWait time.Duration
	// Meta returns what Semaphore.Holders, the page and the command report about a request. It may
	// come from the client; see semaphore.Request for values that are too long. Nil reports the
	// method, the route as keyfunc.Route has it, and as "key" the keys of the rules that no cap has.
	// Keys that are hashes stay hashes. A Meta that returns nil reports nothing.
	Meta func(*http.Request) map[string]string
	// OnQueue is called with the position of a waiting request in the queue of its innermost cap,
	// from 0, whenever the position is known. Nil ignores it.
	OnQueue func(r *http.Request, position int)
	// Skip skips all caps for the requests for which it returns true. Nil skips none.
	Skip func(*http.Request) bool
}

// maxCaps leaves room for the scope in a core.Key.
const maxCaps = 7

func (s *Slot) check(gate *core.Gate, names map[string]bool, fault faultFunc) {
	if s.Semaphore == nil {
		fault("Slot.Semaphore is nil")
	} else if gate != nil && s.Semaphore.Gate() != gate {
		fault("Slot.Semaphore is of another Gate")
	}
	n := len(s.Caps)
	fault.when(n == 0 || n > maxCaps, "Slot.Caps has %d entries: it must have between 1 and %d", n, maxCaps)
	fault.when(s.MaxWait < 0, "Slot.MaxWait is %v: it must not be negative", s.MaxWait)
	for i := range s.Caps {
		s.Caps[i].check(i, names, fault)
	}
}

// appendCaps appends the members of RateLimit-Policy for the caps that have names, with the limits of
// levels.
func (s *Slot) appendCaps(list []byte, levels []semaphore.Cap) []byte {
	for i, c := range s.Caps {
		if c.Name != "" {
			member := `"` + c.Name + `";q=` + integer(levels[i].Limit) + `;qu="concurrent-requests"`
			list = appendMember(list, member)
		}
	}
	return list
}
