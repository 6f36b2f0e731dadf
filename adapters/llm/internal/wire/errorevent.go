package wire

import (
	"encoding/json"
	"strings"
)

// errorEvent returns the bytes that end a stream with the server's own error. They are valid only
// between two events. kind is OpenAI's code, such as rate_limit_exceeded or insufficient_quota.
// Anthropic's type is kind if it ends in _error, and rate_limit_error otherwise. Only OpenAI's
// responses have the sequence number.
func errorEvent(f Format, kind, message string, sequence int64) []byte {
	switch f {
	case OpenAIResponses:
		return eventOf("error", responsesError{
			Type: "error", Code: kind, Message: message, Sequence: sequence,
			Error: faultOf(kind, message),
		})
	case AnthropicMessages:
		if !strings.HasSuffix(kind, "_error") {
			kind = "rate_limit_error"
		}
		return eventOf("error", messagesError{Type: "error", Error: messagesFault{kind, message}})
	}
	return append(eventOf("", chatError{faultOf(kind, message)}), "data: [DONE]\n\n"...)
}

// faultOf returns the error object of OpenAI for a code.
func faultOf(code, message string) chatFault {
	kind := code
	if code == "rate_limit_exceeded" {
		kind = "tokens" // OpenAI's type names the unit that has run out
	}
	return newChatFault(kind, code, message)
}

type chatError struct {
	Error chatFault `json:"error"`
}

type chatFault struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func newChatFault(kind, code, message string) chatFault {
	f := chatFault{Message: message, Type: kind}
	if code != "" {
		f.Code = &code
	}
	return f
}

// responsesError is the error event of a response. OpenAI documents the code and the message next
// to the type, and sends them in an error object. SDKs fail a stream only by that object.
type responsesError struct {
	Type     string    `json:"type"`
	Code     string    `json:"code"`
	Message  string    `json:"message"`
	Param    *string   `json:"param"`
	Error    chatFault `json:"error"`
	Sequence int64     `json:"sequence_number"`
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
