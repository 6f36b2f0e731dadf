package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
)

// Errors is how a server reports errors: in the body of a refusal, and at the end of a stream.
type Errors uint8

const (
	ErrorsOpenAI    Errors = iota
	ErrorsResponses        // OpenAI's, with an event of their own
	ErrorsAnthropic
	ErrorsGoogle
	ErrorsAmazon
	ErrorsCohere
	ErrorsOllama
)

// errorEvent returns the bytes that end a stream with the server's own error. They are valid only
// between two events. kind is OpenAI's code, such as rate_limit_exceeded or insufficient_quota.
// Anthropic's type is kind if it ends in _error, and rate_limit_error otherwise. Only OpenAI's
// responses have the sequence number.
func errorEvent(e Errors, kind, message string, sequence int64) []byte {
	switch e {
	case ErrorsResponses: // the code and the message are documented, SDKs fail a stream by the object
		return eventOf("error", object("type", "error", "code", kind, "message", message, "param", nil,
			"error", faultOf(kind, message), "sequence_number", sequence))
	case ErrorsAnthropic:
		if !strings.HasSuffix(kind, "_error") {
			kind = "rate_limit_error"
		}
		return eventOf("error", messagesError(kind, message))
	case ErrorsGoogle:
		return eventOf("", googleError(http.StatusTooManyRequests, message, 0))
	case ErrorsAmazon:
		return frameOf("throttlingException", object("message", message))
	case ErrorsCohere:
		return eventOf("message-end", object("type", "message-end",
			"delta", object("finish_reason", "ERROR", "error", message)))
	case ErrorsOllama:
		return append(object("error", message), '\n')
	}
	return append(eventOf("", object("error", faultOf(kind, message))), "data: [DONE]\n\n"...)
}

// faultOf returns the error object of OpenAI for a code.
func faultOf(code, message string) []byte {
	kind := code
	if code == "rate_limit_exceeded" {
		kind = "tokens" // OpenAI's type names the unit that has run out
	}
	return chatFault(kind, code, message)
}

// chatFault returns the error object of OpenAI. A code of "" is null.
func chatFault(kind, code, message string) []byte {
	var stated any
	if code != "" {
		stated = code
	}
	return object("message", message, "type", kind, "param", nil, "code", stated)
}

func messagesError(kind, message string) []byte {
	return object("type", "error", "error", object("type", kind, "message", message))
}

// object returns a JSON object of keys and values in order. A value of bytes is JSON itself.
func object(pairs ...any) []byte {
	b := []byte{'{'}
	for i, v := range pairs {
		text, isJSON := v.([]byte)
		if !isJSON {
			text, _ = json.Marshal(v) // strings, integers and nil always marshal
		}
		b = append(append(b, text...), ":,"[i%2])
	}
	return append(bytes.TrimSuffix(b, []byte{','}), '}')
}

// eventOf formats an event. Its data is one line, since JSON escapes line ends in strings.
func eventOf(name string, data []byte) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	return append(append(append(b, "data: "...), data...), "\n\n"...)
}
