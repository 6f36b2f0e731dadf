package llm

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// OpenAI is the nethttp.Dialect of the OpenAI API. It sets x-ratelimit-limit-requests,
// x-ratelimit-remaining-requests and x-ratelimit-reset-requests, and the same three for tokens.
// Each three state one policy: one that counts requests, and one that counts tokens of the input,
// the output or both; see nethttp.LimitHeaders. Reset is the wait until the whole limit is
// available, such as 6m0s or 12ms, rounded up to milliseconds. A policy that counts money fills no
// header.
//
// A refusal is an error object. A 429 has the code rate_limit_exceeded and the type requests or
// tokens, by the unit of the policy that denies for longest; a policy that counts money has the
// type tokens. If that policy is an exhausted budget, type and code are insufficient_quota, which
// clients treat as final. A budget is a policy of tokens or money whose window is longer than
// RetryWithin. It is exhausted when the wait is longer too, unless running requests hold what the
// request needs; see nethttp.Denial. A request whose cost is above what a limit ever allows has the
// code request_too_large, and one that a core.DenyAll denies not_in_plan.
//
// Refusals tell the SDKs of the API how long to wait and when not to retry; see RetryWithin.
type OpenAI struct {
	// RetryWithin is the longest wait that a client should sit out. Zero means a minute. A refusal
	// with a longer wait, or with one that never ends, tells SDKs to give up, by x-should-retry:
	// false. Otherwise an SDK sleeps for all of a Retry-After of weeks, or retries in vain. A
	// request whose id was handled and a client whose block is hidden are told to give up too.
	// Retry-After keeps the true wait, up to nethttp.Config.LongestWait. A wait below a second is
	// also stated in milliseconds, in retry-after-ms.
	RetryWithin time.Duration
}

var openAIHeaders = [...]nethttp.LimitHeaders{
	{
		Units:     []core.Unit{core.UnitRequests},
		Limit:     "X-Ratelimit-Limit-Requests",
		Remaining: "X-Ratelimit-Remaining-Requests",
		Reset:     "X-Ratelimit-Reset-Requests",
	},
	{
		Units:     []core.Unit{core.UnitTokens, core.UnitInputTokens, core.UnitOutputTokens},
		Limit:     "X-Ratelimit-Limit-Tokens",
		Remaining: "X-Ratelimit-Remaining-Tokens",
		Reset:     "X-Ratelimit-Reset-Tokens",
	},
}

// Status returns the same status.
func (OpenAI) Status(status int) int { return status }

// WriteHeaders states a policy that counts requests and one that counts tokens, and steers the
// retries of SDKs.
func (o OpenAI) WriteHeaders(h http.Header, a *nethttp.Admission) {
	for i := range openAIHeaders {
		openAIHeaders[i].Write(h, a, func(r core.Result) string {
			return (time.Duration(milliseconds(r.ResetAfter)) * time.Millisecond).String()
		})
	}
	steerRetries(h, a, o.RetryWithin)
}

// WriteRefusal answers with an error object. Clients look at the code, and at the status to decide
// whether to retry.
func (o OpenAI) WriteRefusal(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
	kind, code := "invalid_request_error", ""
	switch status := a.Status(); {
	case status == http.StatusTooManyRequests:
		kind, code = o.excess(a)
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	default:
		code = finalCode(a)
	}
	writeRefusal(w, a, wire.ErrorsOpenAI, kind, code)
}

// finalCode returns the code of a request that policies deny for ever, or "".
func finalCode(a *nethttp.Admission) (code string) {
	for d := range a.Denials() {
		switch {
		case d.DeniesAll:
			return "not_in_plan"
		case d.TooLarge:
			code = "request_too_large"
		}
	}
	return code
}

// excess returns the type and the code for a 429.
func (o OpenAI) excess(a *nethttp.Admission) (kind, code string) {
	const quota = "insufficient_quota"
	kind, code = "requests", "rate_limit_exceeded"
	if a.Full() != nil {
		return kind, code
	}
	var longest nethttp.Denial
	for d := range a.Denials() {
		if longest.Policy == nil || d.RetryAfter > longest.RetryAfter {
			longest = d
		}
	}
	switch {
	case longest.Policy == nil, longest.Policy.Unit() == core.UnitRequests,
		longest.Policy.Unit() == core.UnitContentBytes:
		return kind, code
	case longest.Running: // nothing is exhausted
	case min(longest.RetryAfter, longest.Window) > patience(o.RetryWithin):
		// The wait alone does not show a budget: a sliding window of a minute may deny for longer.
		return quota, quota
	}
	return "tokens", code
}
