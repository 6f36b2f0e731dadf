package nethttp

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Concurrency caps how many requests run at a time, in addition to the rules of a Guard. A request
// that finds no slot spends nothing under the rules, and one that a rule denies holds no slot; see
// core.Semaphore.Admit. While a request waits for a slot, its costs are spent.
//
// The context of an admitted request is that of its lease, which is cancelled with the cause
// core.ErrLeaseLost if the lease is lost. The slot is free when the handler has returned or
// panicked, also after a hijack, unless the handler has detached it; see LeaseFromContext.
//
// To shut down, close the Gate before the server. Close refuses new and queued requests with 503,
// and renews the leases of running ones until they finish.
type Concurrency struct {
	// Semaphore keeps the slots. It is required, and must be of Config.Gate.
	Semaphore *core.Semaphore
	// Caps are the caps, outermost first, such as tenant and user. There are 1 to 7. A request
	// takes a slot of every cap, or none. The keys stand below Config.Scope, each below those of
	// the caps before it.
	Caps []Cap
	// MaxWait is the longest time for which a request waits in the queue. Zero refuses a request
	// without a slot immediately. See Config.BufferBody for clients that leave the queue.
	MaxWait time.Duration
	// Priority returns the priority of a request, from 0, which is served first, to 9. Nil is 0.
	Priority func(*http.Request) int
	// Meta returns what Semaphore.Holders reports about a request. It may come from the client; see
	// core.SlotRequest for values that are too long. Nil reports nothing.
	Meta func(*http.Request) map[string]string
	// OnQueue is called with the position of a waiting request in the queue of its innermost cap,
	// from 0, whenever the position is known. Nil ignores it.
	OnQueue func(r *http.Request, position int)
	// Skip skips all caps for the requests for which it returns true. Nil skips none.
	Skip func(*http.Request) bool
}

// Cap is one cap of a Concurrency.
type Cap struct {
	// Name is the name that clients see: 1 to 64 of the characters A-Z a-z 0-9 _ . and -. Headers
	// and refusals do not mention a cap without a name.
	Name string
	// Key derives whose cap it is. It is required. A request without a key or with an ambiguous one
	// is refused with 400.
	Key keyfunc.Func
	// Limit is the number of requests of one key that may run at a time, at least 1.
	Limit int64
	// LimitFor returns the limit of a request, such as that of its customer's plan. If LimitFor is
	// nil or returns 0, Limit applies. A lower limit ends no request that runs. The context is that
	// of Rule.Limit. An error, and a limit that is not valid, refuse the request with 500.
	LimitFor func(*http.Request) (int64, error)
	// Share and Floor divide the room of the cap before this one among the keys that wait there;
	// see core.Level. A Floor above the limit of a request counts as that limit. The first cap has
	// neither.
	Share, Floor int64
	// ShareFor returns the share and the floor of a request's key, such as those of its customer's
	// plan. If ShareFor is nil or returns 0, Share or Floor applies. The context is that of
	// Rule.Limit. An error, and numbers that are
	// not valid, refuse the request with 500.
	ShareFor func(*http.Request) (share, floor int64, err error)
	// Global makes the refusal 503 and not 429 when the cap is full: the excess is not the
	// client's own.
	Global bool
}

// maxCaps leaves room for the scope in a core.Key.
const maxCaps = 7

func (c *Concurrency) check(gate *core.Gate, names map[string]bool, fault faultFunc) {
	if c.Semaphore == nil {
		fault("Concurrency.Semaphore is nil")
	} else if gate != nil && c.Semaphore.Gate() != gate {
		fault("Concurrency.Semaphore is of another Gate")
	}
	if n := len(c.Caps); n == 0 || n > maxCaps {
		fault("Concurrency.Caps has %d entries: it must have between 1 and %d", n, maxCaps)
	}
	if c.MaxWait < 0 {
		fault("Concurrency.MaxWait is %v: it must not be negative", c.MaxWait)
	}
	for i, level := range c.Caps {
		if level.Key == nil {
			fault("Concurrency.Caps[%d].Key is nil: say whose cap it is, "+
				"such as keyfunc.RemoteIP()", i)
		}
		if level.Limit < 1 || level.Limit > core.MaxLimit {
			fault("Concurrency.Caps[%d].Limit is %d: it must be between 1 and %d",
				i, level.Limit, int64(core.MaxLimit))
		}
		level.checkShare(i, fault)
		if level.Name == "" {
			continue
		}
		if len(level.Name) > 64 || strings.ContainsFunc(level.Name, invalidInName) {
			fault("Concurrency.Caps[%d].Name is %q: it must be 1 to 64 of the characters "+
				"A-Z a-z 0-9 _ . and -", i, level.Name)
		}
		if names[level.Name] {
			fault("Concurrency.Caps[%d].Name is %q, like that of a rule or another cap",
				i, level.Name)
		}
		names[level.Name] = true
	}
}

func (c *Cap) checkShare(i int, fault faultFunc) {
	if c.Share < 0 || c.Share > core.MaxShare {
		fault("Concurrency.Caps[%d].Share is %d: it must be between 0 and %d", i, c.Share, core.MaxShare)
	}
	if c.Floor < 0 || c.Floor > c.Limit && c.LimitFor == nil {
		fault("Concurrency.Caps[%d].Floor is %d: it must be between 0 and the limit", i, c.Floor)
	}
	if i == 0 && (c.Share != 0 || c.Floor != 0 || c.ShareFor != nil) {
		fault("Concurrency.Caps[0] has a Share, a Floor or a ShareFor, but no cap is before it")
	}
}

func invalidInName(r rune) bool {
	return !(r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("_.-", r))
}
