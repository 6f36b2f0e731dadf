package llm

import "net/http"

// ResponseEvent is what became of an admitted request. Config.Observe receives a pointer to it. It is
// valid until Observe returns.
type ResponseEvent struct {
	// HTTP is the request that the Meter has handled, with its route and its context.
	HTTP     *http.Request
	Request  Request
	Outcome  Outcome
	Estimate Usage
	// Usage is what the budgets that apply to the request were charged for.
	Usage Usage
	// Indebted says that a budget denied a running charge.
	Indebted bool
	// Drained says that the client left and the Meter read the response to its end.
	Drained bool
}

// EventName returns "response".
func (*ResponseEvent) EventName() string { return "response" }
