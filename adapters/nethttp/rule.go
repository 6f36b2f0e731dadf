package nethttp

import (
	"net/http"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Rule is one limit of a Guard.
type Rule struct {
	// Policy is the limit. It is required.
	Policy *core.Policy
	// Key says whose limit it is. It is required: there is no key that is right for everybody.
	Key keyfunc.Func
	// NoKey says what becomes of a request that has no key. The zero value refuses it.
	NoKey NoKey
	// Cost is what a request spends. It is 1 if nil.
	Cost func(*http.Request) int64
	// Settle, if not nil, says what a request has cost really, once it is answered with this status, as CountOnly and
	// RefundServerErrors do. A handler that panics before it has answered counts as 500, and a hijacked connection as a success. Until then
	// the request has spent its cost, so that no more requests run at a time than the limit has room for, and its
	// headers tell of that. The request is the one that the handler was given. More than the cost is charged whether it fits or
	// not; see core.Reservation.Settle. A handler that answers with an error because its client has left is refunded as for any
	// other error.
	Settle func(r *http.Request, status int, cost int64) (actual int64)
	// Skip exempts a request from this rule, if not nil.
	Skip func(*http.Request) bool
}

// NoKey says what becomes of a request from which a rule can derive no key. It never shares a bucket with others.
// A request with an ambiguous key (keyfunc.ErrAmbiguous) is not one without a key: it is refused with 400 in any case,
// because the handler may read a value where the rule does not.
type NoKey uint8

const (
	// NoKeyRefuse refuses it with 400.
	NoKeyRefuse NoKey = iota
	// NoKeySkip exempts it from the rule.
	NoKeySkip
)

// CountOnly is a Rule.Settle that counts only requests answered with one of these statuses, such as 401 and 403 for a
// limit on failed logins. Every request takes its cost until its handler returns, so the limit must exceed the number of
// one key's requests in progress.
func CountOnly(statuses ...int) func(r *http.Request, status int, cost int64) int64 {
	statuses = slices.Clone(statuses)
	return func(_ *http.Request, status int, cost int64) int64 {
		if slices.Contains(statuses, status) {
			return cost
		}
		return 0
	}
}

// RefundServerErrors is a Rule.Settle that does not count requests answered with a status of 500 or above.
func RefundServerErrors(_ *http.Request, status int, cost int64) int64 {
	if status >= http.StatusInternalServerError {
		return 0
	}
	return cost
}
