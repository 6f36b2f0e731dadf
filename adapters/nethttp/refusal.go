package nethttp

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Refusal is the format of a refusal's body.
type Refusal uint8

const (
	// Problem is problem details (RFC 9457) with the types and the extension of
	// draft-ietf-httpapi-ratelimit-headers-10, section 6.
	Problem Refusal = iota
	// PlainText is one line of text.
	PlainText
	// OpenAIError is an error object of the OpenAI API, which clients of that API understand. A 429
	// has the code rate_limit_exceeded and the type requests or tokens, by the unit of the policy
	// that denies for longest; a policy that counts money has the type tokens. If that policy is an
	// exhausted budget, type and code are insufficient_quota, which clients treat as final. A budget
	// is a policy of tokens or money whose window is longer than Config.RetryWithin. It is exhausted
	// when the wait is longer too, unless its limit is too small for the request anyway.
	OpenAIError
	// AnthropicError is an error object of the Anthropic API, which clients of that API understand.
	// Its statuses are that API's too: in place of 503 the status is StatusOverloaded.
	AnthropicError
)

// StatusOverloaded is the status of the Anthropic API for an excess that is not the client's own;
// see AnthropicError. It is not a registered status.
const StatusOverloaded = 529

// String returns the format in lower-case words.
func (f Refusal) String() string {
	return nameOf([]string{"problem", "plain text", "openai error", "anthropic error"}, int(f))
}

// overloaded returns the status of a refusal for an excess that is not the client's own.
func (f Refusal) overloaded() int {
	if f == AnthropicError {
		return StatusOverloaded
	}
	return http.StatusServiceUnavailable
}

// AboutBlank is the ProblemBase of problem details without a type of their own (RFC 9457,
// section 4.2.1).
const AboutBlank = "about:blank"

const draftProblemBase = "https://iana.org/assignments/http-problem-types#"

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail,omitempty"`
	Violated []string `json:"violated-policies,omitempty"`
}

func problemOf(a *Admission) problem {
	p := problem{
		Type: AboutBlank, Title: a.StatusText(), Status: a.status, Detail: a.detail(),
	}
	name, title := "", ""
	switch {
	case a.blocked():
		name, title = "abnormal-usage-detected", "Abnormal Usage Detected"
		p.Violated = a.Violated()
	case a.status == http.StatusTooManyRequests:
		name, title = "quota-exceeded", "Quota Exceeded"
		p.Violated = a.Violated()
	case a.status == http.StatusServiceUnavailable:
		name, title = "temporary-reduced-capacity", "Temporary Reduced Capacity"
		p.Violated = a.Violated()
	}
	if base := a.guard.cfg.ProblemBase; name != "" && base != AboutBlank {
		p.Type, p.Title = base+name, title
	}
	return p
}

// detail returns a sentence for the client, or "" if the status says it all.
func (a *Admission) detail() string {
	switch {
	case a.full != nil:
		return a.fullDetail()
	case a.handled:
		return "A request with this id was handled before."
	case a.busy > 0:
		return "Another request with this id is being handled."
	case a.blocked():
		return "The client is blocked for a while because of its earlier requests."
	case a.status == http.StatusTooManyRequests:
		return a.denialDetail()
	case errors.Is(a.err, keyfunc.ErrAmbiguous):
		return "The request is ambiguous about the key of its rate limit."
	case a.status == http.StatusBadRequest && errors.Is(a.err, errID):
		return "The request lacks its id."
	case a.status == http.StatusBadRequest && !errors.Is(a.err, errBody):
		return "The request lacks the key of its rate limit."
	}
	return ""
}

// denialDetail tells the client which policies deny the request, and why.
func (a *Admission) denialDetail() string {
	var over, short, exhausted []string
	for i, r := range a.denials() {
		name := `"` + r.Policy.Name() + `"`
		switch {
		case tooLarge(r, a.charged[i].cost):
			over = append(over, name)
		case r.Known && r.Remaining > 0:
			short = append(short, name)
		default:
			exhausted = append(exhausted, name)
		}
	}
	var sentences []string
	add := func(before string, names []string, after string) {
		if len(names) == 0 {
			return
		}
		word := "policy "
		if len(names) > 1 {
			word = "policies "
		}
		sentences = append(sentences, before+word+strings.Join(names, ", ")+after)
	}
	add("The cost of the request exceeds the limit of ", over, ".")
	add("The request costs more than is left of ", short, ".")
	add("The quota of ", exhausted, " is exhausted.")
	return strings.Join(sentences, " ")
}

// tooLarge reports whether the cost is above what the limit ever allows. A SlidingLog tells its
// longest window in Limit, and a shorter one may allow less: then more becomes available but never
// enough.
func tooLarge(r core.Result, cost int64) bool {
	return r.RetryAfter == core.Never && r.Limit > 0 &&
		(cost > r.Limit || r.NextAfter != core.Never)
}

// message returns the detail, or the status in words.
func (a *Admission) message() string { return cmp.Or(a.detail(), a.StatusText()) }

func writeRefusal(w http.ResponseWriter, r *http.Request, a *Admission) {
	h := w.Header()
	if a.status < 300 { // Replay.HandledStatus
		w.WriteHeader(a.status)
		return
	}
	var body []byte
	switch a.guard.cfg.Refusal {
	case PlainText:
		h.Set("Content-Type", "text/plain; charset=utf-8")
		body = []byte(a.message())
	case OpenAIError:
		h.Set("Content-Type", "application/json")
		body = marshal(openAIErrorOf(a))
	case AnthropicError:
		h.Set("Content-Type", "application/json")
		body = marshal(anthropicErrorOf(a))
	default:
		h.Set("Content-Type", "application/problem+json")
		body = marshal(problemOf(a))
	}
	body = append(body, '\n')
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

func marshal(v any) []byte {
	body, err := json.Marshal(v)
	if err != nil { // strings and a number always marshal
		return []byte("{}")
	}
	return body
}
