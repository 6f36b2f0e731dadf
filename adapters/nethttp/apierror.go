package nethttp

import (
	"net/http"

	"github.com/headgate/headgate/core"
)

// openAIError is the error object of the OpenAI API. Its clients look at the code, and at the
// status to decide whether to retry.
type openAIError struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	} `json:"error"`
}

func openAIErrorOf(a *Admission) (e openAIError) {
	e.Error.Message = a.message()
	switch {
	case a.status == http.StatusTooManyRequests:
		kind, code := a.excess()
		e.Error.Type, e.Error.Code = kind, &code
	case a.status >= http.StatusInternalServerError:
		e.Error.Type = "server_error"
	default:
		e.Error.Type = "invalid_request_error"
	}
	return e
}

// excess returns the type and the code of the OpenAI API for a 429.
func (a *Admission) excess() (kind, code string) {
	const quota = "insufficient_quota"
	kind, code = "requests", "rate_limit_exceeded"
	if a.full != nil {
		return kind, code
	}
	at, longest, found := 0, core.Result{}, false
	for i, r := range a.denials() {
		if !found || r.RetryAfter > longest.RetryAfter {
			at, longest, found = i, r, true
		}
	}
	switch {
	case !found || longest.Policy.Unit() == core.UnitRequests:
		return kind, code
	case a.exhausts(longest, a.charged[at].cost):
		return quota, quota
	}
	return "tokens", code
}

// exhausts reports whether a denial means that a budget is gone. The window of a budget is longer
// than a client should wait. The wait alone does not tell: a sliding window of a minute may deny
// for longer than a minute.
func (a *Admission) exhausts(r core.Result, cost int64) bool {
	return min(r.RetryAfter, r.Window) > a.guard.cfg.RetryWithin && !tooLarge(r, cost)
}

// anthropicError is the error object of the Anthropic API. Its clients look at the inner type.
type anthropicError struct {
	Type  string `json:"type"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

func anthropicErrorOf(a *Admission) anthropicError {
	e := anthropicError{Type: "error"}
	e.Error.Message = a.message()
	switch {
	case a.status == http.StatusForbidden:
		e.Error.Type = "permission_error"
	case a.status == http.StatusRequestEntityTooLarge:
		e.Error.Type = "request_too_large"
	case a.status == http.StatusTooManyRequests:
		e.Error.Type = "rate_limit_error"
	case a.status == StatusOverloaded:
		e.Error.Type = "overloaded_error"
	case a.status >= http.StatusInternalServerError:
		e.Error.Type = "api_error"
	default:
		e.Error.Type = "invalid_request_error"
	}
	return e
}
