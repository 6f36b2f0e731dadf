package provider

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Form is how a provider refuses, and what its responses tell of its limits.
type Form uint8

const (
	// Seconds refuses with 429 and Retry-After in seconds, rounded up.
	Seconds Form = iota
	// Date refuses with 429 and Retry-After as a date.
	Date
	// Millis refuses with 429, retry-after-ms and Retry-After.
	Millis
	// OpenAI tells x-ratelimit headers, and refuses with retry-after-ms.
	OpenAI
	// Resets tells x-ratelimit headers, and refuses without another wait.
	Resets
	// Anthropic tells anthropic-ratelimit headers, and refuses with Retry-After.
	Anthropic
	// Gemini refuses with a RetryInfo in the body.
	Gemini
	// Draft11 tells RateLimit and RateLimit-Policy, and refuses without another wait.
	Draft11
	// Draft06 tells RateLimit-Limit, -Remaining and -Reset, and refuses without another wait.
	Draft06
	// GitHub tells x-ratelimit headers with a reset in seconds since 1970, and refuses with 403.
	GitHub
	// Message refuses with a wait in the text of the error.
	Message
	// Unclear refuses with a 429 that tells nothing.
	Unclear
	// Overloaded refuses with 529, without a wait.
	Overloaded
	// Spent refuses with insufficient_quota.
	Spent

	forms
)

// Forms are those whose refusals tell the wait.
var Forms = []Form{
	Seconds, Date, Millis, OpenAI, Resets, Anthropic, Gemini, Draft11, Draft06, GitHub, Message,
}

var names = [forms]string{
	"Seconds", "Date", "Millis", "OpenAI", "Resets", "Anthropic", "Gemini", "Draft11", "Draft06",
	"GitHub", "Message", "Unclear", "Overloaded", "Spent",
}

func (f Form) String() string { return names[f] }

// tell sets the headers that every response has. Where a header stands for all limits of a unit, it
// states the last.
func (f Form) tell(h http.Header, v *verdict) {
	h.Set("Date", v.now.UTC().Format(http.TimeFormat))
	for i, l := range v.left {
		if v.refused && l.limit.Unit == v.unit && v.wait > 0 {
			l.n, l.reset = 0, v.wait
		}
		f.tellLimit(h, i, &l, v)
	}
}

func (f Form) tellLimit(h http.Header, i int, l *left, v *verdict) {
	switch f {
	case OpenAI, Resets:
		h.Set("x-ratelimit-limit-"+l.limit.Unit, strconv.FormatInt(l.limit.N, 10))
		h.Set("x-ratelimit-remaining-"+l.limit.Unit, strconv.FormatInt(l.n, 10))
		h.Set("x-ratelimit-reset-"+l.limit.Unit, up(l.reset, time.Millisecond).String())
	case Anthropic:
		name := "anthropic-ratelimit-" + l.limit.Unit + "-"
		h.Set(name+"limit", strconv.FormatInt(l.limit.N, 10))
		h.Set(name+"remaining", strconv.FormatInt(l.n, 10))
		h.Set(name+"reset", up(l.reset, time.Second).moment(v.now).UTC().Format(time.RFC3339))
	case Draft11:
		unit := ""
		if l.limit.Unit != Requests {
			unit = fmt.Sprintf(";qu=%q", l.limit.Unit)
		}
		h.Add("RateLimit-Policy",
			fmt.Sprintf(`"l%d";q=%d;w=%d%s`, i, l.limit.N, up(l.limit.Per, time.Second).seconds(), unit))
		h.Add("RateLimit", fmt.Sprintf(`"l%d";r=%d;t=%d`, i, l.n, up(l.reset, time.Second).seconds()))
	case Draft06, GitHub:
		if l.limit.Unit != Requests || i > 0 {
			return
		}
		prefix, reset := "RateLimit-", strconv.FormatInt(up(l.reset, time.Second).seconds(), 10)
		if f == GitHub {
			prefix = "X-RateLimit-"
			reset = strconv.FormatInt(up(l.reset, time.Second).moment(v.now).Unix(), 10)
		}
		h.Set(prefix+"Limit", strconv.FormatInt(l.limit.N, 10))
		h.Set(prefix+"Remaining", strconv.FormatInt(l.n, 10))
		h.Set(prefix+"Reset", reset)
	}
}

// refuse writes a refusal.
func (f Form) refuse(w http.ResponseWriter, v *verdict) {
	h, status, body := w.Header(), http.StatusTooManyRequests, `{"error":{"message":"slow down"}}`
	switch f {
	case Seconds:
		f.retryAfter(h, v)
	case Date:
		if v.wait > 0 {
			h.Set("Retry-After", up(v.wait, time.Second).moment(v.now).UTC().Format(http.TimeFormat))
		}
	case Millis, OpenAI:
		f.retryAfter(h, v)
		if v.wait > 0 {
			h.Set("Retry-After-Ms", strconv.FormatInt(int64(up(v.wait, time.Millisecond))/1e6, 10))
		}
		body = fmt.Sprintf(`{"error":{"message":"Rate limit reached for %s","type":%q,"param":null,`+
			`"code":"rate_limit_exceeded"}}`, v.model, v.unit)
	case Anthropic:
		f.retryAfter(h, v)
		body = `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed a limit"}}`
	case Gemini:
		body = fmt.Sprintf(`{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"quota","details":[`+
			`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[`+
			`{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]},`+
			`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%gs"}]}}`, v.wait.Seconds())
	case GitHub:
		status, body = http.StatusForbidden, `{"message":"Too many requests"}`
	case Message:
		body = fmt.Sprintf(`{"error":{"message":"Rate limit reached for %s. Please try again in %s."}}`,
			v.model, strings.TrimSpace(v.wait.String()))
	case Overloaded:
		status, body = 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	case Spent:
		body = `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota",` +
			`"param":null,"code":"insufficient_quota"}}`
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func (Form) retryAfter(h http.Header, v *verdict) {
	if v.wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(up(v.wait, time.Second).seconds(), 10))
	}
}

// rounded is a time that was rounded up to what a header states.
type rounded time.Duration

func up(d, to time.Duration) rounded { return rounded((d + to - 1) / to * to) }

func (r rounded) seconds() int64                  { return int64(time.Duration(r) / time.Second) }
func (r rounded) moment(from time.Time) time.Time { return from.Add(time.Duration(r)) }
func (r rounded) String() string                  { return time.Duration(r).String() }
