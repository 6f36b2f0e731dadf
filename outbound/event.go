package outbound

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/core"
)

// RequestEvent is one request, when its response has come or it has failed. It is a core.Event.
type RequestEvent struct {
	Request *http.Request
	// Status is that of the response, or 0 if there is none.
	Status int
	// Sent is how often the request was sent.
	Sent int
	// Waited is how long it has waited for room, all its retries together.
	Waited time.Duration
	// Err is the error that the caller receives, such as a *BusyError.
	Err  error
	Took time.Duration
}

// EventName returns "request".
func (e *RequestEvent) EventName() string { return "request" }

// WaitEvent is a request that begins to wait. A RequestEvent follows. It is a core.Event.
type WaitEvent struct {
	Request *http.Request
	// Rule is what it waits for, as in a BusyError.
	Rule string
	// For is the expected wait, and 0 if there is no expectation.
	For time.Duration
}

// EventName returns "wait".
func (e *WaitEvent) EventName() string { return "wait" }

// CooldownEvent is a refusal of the upstream, and the cooldown that it began. It is a core.Event.
type CooldownEvent struct {
	Request *http.Request
	// Key is the key that cools.
	Key    core.Key
	Status int // of the response
	// For is how long Key cools from now on. It is longer than the refusal told if another one told
	// more.
	For time.Duration
	// Spent reports that the account is spent, and Guessed that the refusal told no wait.
	Spent, Guessed bool
	// Err says that the cooldown may be unknown to other replicas.
	Err error
}

// EventName returns "cooldown".
func (e *CooldownEvent) EventName() string { return "cooldown" }

// LowerEvent is a response that told less to be left than a rule counted. It is a core.Event.
type LowerEvent struct {
	Policy *core.Policy
	Key    core.Key
	// Remaining is what the response told, and Spent how many units were spent for that.
	Remaining, Spent int64
	// Err says that the rule may count what it did before.
	Err error
}

// EventName returns "lower".
func (e *LowerEvent) EventName() string { return "lower" }
