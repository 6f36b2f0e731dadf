package wire

import (
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
	case ErrorsResponses:
		return eventOf("error", responsesError{
			Type: "error", Code: kind, Message: message, Sequence: sequence,
			Error: faultOf(kind, message),
		})
	case ErrorsAnthropic:
		if !strings.HasSuffix(kind, "_error") {
			kind = "rate_limit_error"
		}
		return eventOf("error", messagesError{Type: "error", Error: messagesFault{kind, message}})
	case ErrorsGoogle:
		return eventOf("", googleErrorOf(http.StatusTooManyRequests, message, 0))
	case ErrorsAmazon:
		return frameOf("throttlingException", jsonOf(messageOnly{message}))
	case ErrorsCohere:
		return eventOf("message-end", cohereEnd{"message-end", cohereDelta{"ERROR", message}})
	case ErrorsOllama:
		return append(jsonOf(errorOnly{message}), '\n')
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

type googleError struct {
	Error googleFault `json:"error"`
}

type googleFault struct {
	Code    int            `json:"code"`
	Message string         `json:"message"`
	Status  string         `json:"status"`
	Details []googleDetail `json:"details,omitempty"`
}

type googleDetail struct {
	Type       string `json:"@type"`
	RetryDelay string `json:"retryDelay"`
}

type messageOnly struct {
	Message string `json:"message"`
}

type errorOnly struct {
	Error string `json:"error"`
}

type cohereEnd struct {
	Type  string      `json:"type"`
	Delta cohereDelta `json:"delta"`
}

type cohereDelta struct {
	Reason string `json:"finish_reason"`
	Error  string `json:"error"`
}

// eventOf formats an event. Its data is one line, since JSON escapes line ends in strings.
func eventOf(name string, v any) []byte {
	var b []byte
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	return append(append(append(b, "data: "...), jsonOf(v)...), "\n\n"...)
}

func jsonOf(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // structs of strings and integers always marshal
	}
	return b
}
