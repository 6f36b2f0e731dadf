package llm

import (
	"encoding/json"
	"net/http"
	"strings"
)

// errorBody returns the body of a refusal.
func errorBody(f Format, e *fault) []byte {
	var v any = chatError{chatFault{Message: e.message, Type: e.kind[0], Code: e.kind[1]}}
	if f == AnthropicMessages {
		kind := "invalid_request_error"
		switch {
		case e.status >= http.StatusInternalServerError:
			kind = "api_error"
		case e.status == http.StatusNotFound:
			kind = "not_found_error"
		case e.status == http.StatusRequestEntityTooLarge:
			kind = "request_too_large"
		}
		v = messagesError{Type: "error", Error: messagesFault{kind, e.message}}
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil // structs of strings always marshal
	}
	return append(body, '\n')
}

// errorEvent returns the bytes that end a stream with the server's own error. They are valid
// only between two events. kind is OpenAI's code, such as rate_limit_exceeded or insufficient_quota.
// Anthropic's type is kind if that ends in _error, and otherwise rate_limit_error. The event of a
// response has the sequence number.
func errorEvent(f Format, kind, message string, sequence int64) []byte {
	switch f {
	case OpenAIResponses:
		return eventOf("error", responsesError{
			Type: "error", Code: kind, Message: message, Sequence: sequence,
		})
	case AnthropicMessages:
		if !strings.HasSuffix(kind, "_error") {
			kind = "rate_limit_error"
		}
		return eventOf("error", messagesError{Type: "error", Error: messagesFault{kind, message}})
	}
	fault := chatFault{Message: message, Type: kind, Code: kind}
	if kind == "rate_limit_exceeded" {
		fault.Type = "tokens" // OpenAI's type says which unit has run out
	}
	return append(eventOf("", chatError{fault}), "data: [DONE]\n\n"...)
}

type chatError struct {
	Error chatFault `json:"error"`
}

type chatFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

type responsesError struct {
	Type     string  `json:"type"`
	Code     string  `json:"code"`
	Message  string  `json:"message"`
	Param    *string `json:"param"`
	Sequence int64   `json:"sequence_number"`
}

type messagesError struct {
	Type  string        `json:"type"`
	Error messagesFault `json:"error"`
}

type messagesFault struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// eventOf formats an event. Its data is one line, since JSON escapes line ends in strings.
func eventOf(name string, v any) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil // structs of strings and integers always marshal
	}
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}
