package wire

import (
	"net/http"
	"slices"
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
func (e *Fault) Write(w http.ResponseWriter, kind Errors) {
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
	_, _ = w.Write(body) // the client may be gone, or want no body
}

func (e *Fault) body(kind Errors) []byte {
	switch kind {
	case ErrorsAnthropic:
		return object("type", "error",
			"error", object("type", anthropicNames.name(e.Status), "message", e.Message))
	case ErrorsGoogle:
		return e.google()
	case ErrorsAmazon, ErrorsCohere:
		return object("message", e.Message)
	case ErrorsOllama:
		return object("error", e.Message)
	}
	return object("error", e.chat())
}

// chat returns the error object of OpenAI.
func (e *Fault) chat() []byte {
	var code any // null if there is none
	if e.Code != "" {
		code = e.Code
	}
	return object("message", e.Message, "type", e.Type, "param", nil, "code", code)
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

// google returns Google's error, which states the wait before a retry in the body only.
func (e *Fault) google() []byte {
	fault := []any{"code", e.Status, "message", e.Message, "status", googleNames.name(e.Status)}
	if e.RetryAfter > 0 {
		detail := object("@type", "type.googleapis.com/google.rpc.RetryInfo",
			"retryDelay", strconv.FormatFloat(e.RetryAfter.Seconds(), 'f', -1, 64)+"s")
		fault = append(fault, "details", slices.Concat([]byte{'['}, detail, []byte{']'}))
	}
	return object("error", object(fault...))
}
