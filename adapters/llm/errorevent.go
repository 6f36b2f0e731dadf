package llm

import (
	"encoding/json"
	"strings"
)

// errorEvent returns the bytes that end a stream with the provider's own error. They are valid only
// between two events. kind is OpenAI's code, such as rate_limit_exceeded or insufficient_quota.
// Anthropic's type is kind if that ends in _error, and otherwise rate_limit_error.
func errorEvent(f Format, kind, message string) []byte {
	return appendErrorEvent(f, kind, message, 0)
}

// appendErrorEvent is errorEvent with the sequence_number that the event of a response has.
func appendErrorEvent(f Format, kind, message string, sequence int64) []byte {
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
