package llm

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// Anthropic is the nethttp.Dialect of the Anthropic API. It sets
// anthropic-ratelimit-requests-limit, anthropic-ratelimit-requests-remaining and
// anthropic-ratelimit-requests-reset, and the same three for tokens, input-tokens and
// output-tokens. Each three state one policy of that unit; see nethttp.LimitHeaders. Reset is a
// time in UTC as RFC 3339 has it, rounded up to seconds; see nethttp.ResetAt. Remaining is
// exact, while the Anthropic API rounds tokens to thousands.
//
// A refusal is an error object. In place of 503 its status is StatusOverloaded.
type Anthropic struct {
	// RetryWithin is the longest wait that a client should sit out; see OpenAI.RetryWithin.
	RetryWithin time.Duration
}

// StatusOverloaded is the status of the Anthropic API for an excess that is not the client's own.
// It is not a registered status.
const StatusOverloaded = wire.StatusOverloaded

var anthropicHeaders = [...]nethttp.LimitHeaders{
	anthropicHeadersOf(core.UnitRequests, "Requests"),
	anthropicHeadersOf(core.UnitTokens, "Tokens"),
	anthropicHeadersOf(core.UnitInputTokens, "Input-Tokens"),
	anthropicHeadersOf(core.UnitOutputTokens, "Output-Tokens"),
}

func anthropicHeadersOf(unit core.Unit, name string) nethttp.LimitHeaders {
	name = "Anthropic-Ratelimit-" + name
	return nethttp.LimitHeaders{
		Units:     []core.Unit{unit},
		Limit:     name + "-Limit",
		Remaining: name + "-Remaining",
		Reset:     name + "-Reset",
	}
}

// Status returns StatusOverloaded in place of 503.
func (Anthropic) Status(status int) int {
	if status == http.StatusServiceUnavailable {
		return StatusOverloaded
	}
	return status
}

// WriteHeaders states a policy of each unit, and steers the retries of SDKs.
func (d Anthropic) WriteHeaders(h http.Header, a *nethttp.Admission) {
	for i := range anthropicHeaders {
		anthropicHeaders[i].Write(h, a, func(r core.Result) string {
			return nethttp.ResetAt(r).UTC().Format(time.RFC3339)
		})
	}
	steerRetries(h, a, d.RetryWithin)
}

// WriteRefusal answers with an error object. Clients look at the inner type.
func (Anthropic) WriteRefusal(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
	writeRefusal(w, a, wire.ErrorsAnthropic, "", "")
}
