package wire

import (
	"net/http"
	"strconv"
	"time"
)

// StatusOverloaded is Anthropic's status for an excess that is not the client's own.
const StatusOverloaded = 529

// Fault is why a request is refused.
type Fault struct {
	Status  int
	Type    string // of OpenAI's error; Anthropic's follows from Status
	Code    string // of OpenAI's error; empty means null
	Message string

	RetryAfter time.Duration // 0 is none
}

// Write answers a request with an error as a server reports it. A Retry-After that the response has
// stays.
func (e *Fault) Write(w http.ResponseWriter, r *http.Request, kind Errors) {
	body := append(e.body(kind), '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if kind == ErrorsAmazon {
		h.Set("X-Amzn-Errortype", amazonType(e.Status))
	}
	if e.RetryAfter > 0 && h.Get("Retry-After") == "" {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(e.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

func (e *Fault) body(kind Errors) []byte {
	switch kind {
	case ErrorsAnthropic:
		return messagesError(e.messagesType(), e.Message)
	case ErrorsGoogle:
		return googleError(e.Status, e.Message, e.RetryAfter)
	case ErrorsAmazon, ErrorsCohere:
		return object("message", e.Message)
	case ErrorsOllama:
		return object("error", e.Message)
	}
	return object("error", chatFault(e.Type, e.Code, e.Message))
}

// messagesType returns Anthropic's type for the status.
func (e *Fault) messagesType() string {
	switch {
	case e.Status == http.StatusPaymentRequired:
		return "billing_error"
	case e.Status == http.StatusForbidden:
		return "permission_error"
	case e.Status == http.StatusNotFound:
		return "not_found_error"
	case e.Status == http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case e.Status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case e.Status == StatusOverloaded:
		return "overloaded_error"
	case e.Status >= http.StatusInternalServerError:
		return "api_error"
	}
	return "invalid_request_error"
}

// googleError returns Google's error. Google states the wait before a retry in the body only.
func googleError(status int, message string, retryAfter time.Duration) []byte {
	name := "INVALID_ARGUMENT"
	switch {
	case status == http.StatusForbidden:
		name = "PERMISSION_DENIED"
	case status == http.StatusNotFound:
		name = "NOT_FOUND"
	case status == http.StatusTooManyRequests:
		name = "RESOURCE_EXHAUSTED"
	case status == http.StatusServiceUnavailable:
		name = "UNAVAILABLE"
	case status >= http.StatusInternalServerError:
		name = "INTERNAL"
	}
	fault := []any{"code", status, "message", message, "status", name}
	if retryAfter > 0 {
		detail := object("@type", "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay", strconv.FormatFloat(retryAfter.Seconds(), 'f', -1, 64)+"s")
		fault = append(fault, "details", append(append([]byte{'['}, detail...), ']'))
	}
	return object("error", object(fault...))
}

// amazonType returns Amazon's name of an error for the status.
func amazonType(status int) string {
	switch {
	case status == http.StatusForbidden:
		return "AccessDeniedException"
	case status == http.StatusNotFound:
		return "ResourceNotFoundException"
	case status == http.StatusTooManyRequests:
		return "ThrottlingException"
	case status == http.StatusServiceUnavailable:
		return "ServiceUnavailableException"
	case status >= http.StatusInternalServerError:
		return "InternalServerException"
	}
	return "ValidationException"
}
