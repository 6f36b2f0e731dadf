package wire

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// StatusOverloaded is Anthropic's status for an excess that is not the client's own.
const StatusOverloaded = 529

// Fault is why a request is refused.
type Fault struct {
	Status  int
	Type    string // of OpenAI's error; Anthropic's follows from Status
	Code    string // of OpenAI's error; empty means null
	Message string

	RetryAfter int // seconds; 0 is none
}

// Write answers a request with an error of the format.
func (e *Fault) Write(w http.ResponseWriter, r *http.Request, f Format) {
	body := e.body(f)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	w.WriteHeader(e.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

func (e *Fault) body(f Format) []byte {
	var v any = chatError{newChatFault(e.Type, e.Code, e.Message)}
	if f == AnthropicMessages {
		v = messagesError{Type: "error", Error: messagesFault{e.messagesType(), e.Message}}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil // structs of strings always marshal
	}
	return append(body, '\n')
}

// messagesType returns Anthropic's type for the status.
func (e *Fault) messagesType() string {
	switch {
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
