package llm

import (
	"net/http"

	"github.com/headgate/headgate/internal/enum"
)

// ResponseEvent is what became of an admitted request, or of one whose client left before it was
// admitted. Config.Observe receives a pointer to it. It is valid until Observe returns.
type ResponseEvent struct {
	// HTTP is the request that the Meter has handled, with its route and its context.
	HTTP     *http.Request
	Request  Request
	Outcome  Outcome
	Estimate Usage
	// Bill is what the budgets that apply to the request were charged for: Usage, and what else has a
	// price.
	Bill
	// Cost is the price of the Bill in micro-dollars. It is 0 if no model has a Tariff.
	Cost int64
	// Unknown is what the tariffs do not price and the dearest was charged for, such as "unit
	// web_search", "label service_tier:ultra" or "model advisor". It begins with Bill.Unread.
	Unknown []string
	// Indebted says that a budget denied a running charge.
	Indebted bool
	// Drained says that the client left and the Meter read the response on without it.
	Drained bool
}

// EventName returns "response".
func (*ResponseEvent) EventName() string { return "response" }

// Outcome is how the Meter found the usage of a request.
type Outcome uint8

const (
	// OutcomeReported: the response stated its usage, which was charged to the token.
	OutcomeReported Outcome = iota
	// OutcomeFailed: the server failed before it sent any part of an answer, or reported an error
	// in place of one. Nothing was charged.
	OutcomeFailed
	// OutcomeCut: the response broke off, because the client left, the server failed, or a budget
	// ended the stream. Its input and the output that was seen were charged.
	OutcomeCut
	// OutcomeUnreported: the response was whole and did not state its usage, or the Meter could not
	// read it. The estimate was charged, or the input and the output that was seen if they are
	// more.
	OutcomeUnreported
	// OutcomeLeft: the client left before the request was admitted, such as while the budgets were
	// asked. Nothing was charged.
	OutcomeLeft
)

// String returns the outcome in one lower-case word.
func (o Outcome) String() string {
	return enum.Name([]string{"reported", "failed", "cut", "unreported", "left"}, int(o))
}
