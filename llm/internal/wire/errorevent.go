package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
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
// between two events. code is OpenAI's: rate_limit_exceeded or insufficient_quota. Only OpenAI's
// responses have the sequence number.
func errorEvent(e Errors, code, message string, sequence int64) []byte {
	fault := Fault{Status: http.StatusTooManyRequests, Type: code, Code: code, Message: message}
	if code == "rate_limit_exceeded" {
		fault.Type = "tokens" // OpenAI's type names the unit that has run out
	}
	body := fault.body(e)
	switch e {
	case ErrorsResponses: // the code and the message are documented, SDKs fail a stream by the object
		return eventOf("error", object("type", "error", "code", code, "message", message, "param", nil,
			"error", fault.chat(), "sequence_number", sequence))
	case ErrorsAnthropic:
		return eventOf("error", body)
	case ErrorsGoogle:
		return eventOf("", body)
	case ErrorsAmazon:
		return frameOf("throttlingException", body)
	case ErrorsCohere:
		return eventOf("message-end", object("type", "message-end",
			"delta", object("finish_reason", "ERROR", "error", message)))
	case ErrorsOllama:
		return append(body, '\n')
	}
	return append(eventOf("", body), "data: [DONE]\n\n"...)
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
