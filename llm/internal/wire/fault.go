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
		h.Set("X-Amzn-Errortype", amazonNames.name(e.Status))
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
		return messagesError(anthropicNames.name(e.Status), e.Message)
	case ErrorsGoogle:
		return googleError(e.Status, e.Message, e.RetryAfter)
	case ErrorsAmazon, ErrorsCohere:
		return object("message", e.Message)
	case ErrorsOllama:
		return object("error", e.Message)
	}
	return object("error", chatFault(e.Type, e.Code, e.Message))
}

// statusNames are a server's names of errors by status, of those from 500 on, and of the others.
type statusNames struct {
	of            map[int]string
	server, other string
}

func (n *statusNames) name(status int) string {
	switch name := n.of[status]; {
	case name != "":
		return name
	case status >= http.StatusInternalServerError:
		return n.server
	}
	return n.other
}

var (
	anthropicNames = statusNames{map[int]string{
		http.StatusPaymentRequired: "billing_error", http.StatusForbidden: "permission_error",
		http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large",
		http.StatusTooManyRequests: "rate_limit_error", StatusOverloaded: "overloaded_error",
	}, "api_error", "invalid_request_error"}
	googleNames = statusNames{map[int]string{
		http.StatusForbidden: "PERMISSION_DENIED", http.StatusNotFound: "NOT_FOUND",
		http.StatusTooManyRequests: "RESOURCE_EXHAUSTED", http.StatusServiceUnavailable: "UNAVAILABLE",
	}, "INTERNAL", "INVALID_ARGUMENT"}
	amazonNames = statusNames{map[int]string{
		http.StatusForbidden: "AccessDeniedException", http.StatusNotFound: "ResourceNotFoundException",
		http.StatusTooManyRequests:    "ThrottlingException",
		http.StatusServiceUnavailable: "ServiceUnavailableException",
	}, "InternalServerException", "ValidationException"}
)

// googleError returns Google's error. Google states the wait before a retry in the body only.
func googleError(status int, message string, retryAfter time.Duration) []byte {
	fault := []any{"code", status, "message", message, "status", googleNames.name(status)}
	if retryAfter > 0 {
		detail := object("@type", "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay", strconv.FormatFloat(retryAfter.Seconds(), 'f', -1, 64)+"s")
		fault = append(fault, "details", append(append([]byte{'['}, detail...), ']'))
	}
	return object("error", object(fault...))
}
