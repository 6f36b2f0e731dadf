package llm

import (
	"cmp"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/llm/internal/wire"
)

// dialectOf returns the Dialect of the server that the clients of a format expect.
func dialectOf(f *wire.Format, within time.Duration) nethttp.Dialect {
	switch kind := f.Errors(); kind {
	case wire.ErrorsOpenAI, wire.ErrorsResponses:
		return OpenAI{RetryWithin: within}
	case wire.ErrorsAnthropic:
		return Anthropic{RetryWithin: within}
	default:
		return other{OpenAI{RetryWithin: within}, kind}
	}
}

// other is the dialect of a server that states no limits of its own. It has the headers of OpenAI,
// which most clients know, and its own errors.
type other struct {
	OpenAI
	errors wire.Errors
}

// WriteRefusal answers with the error of the server.
func (o other) WriteRefusal(w http.ResponseWriter, _ *http.Request, a *nethttp.Admission) {
	writeRefusal(w, a, o.errors, "", "")
}

// patience returns the longest wait that a client should sit out.
func patience(within time.Duration) time.Duration { return cmp.Or(within, time.Minute) }

// writeRefusal answers a refused request with the error object of a server. Only OpenAI's has a
// type and a code.
func writeRefusal(
	w http.ResponseWriter, a *nethttp.Admission, errors wire.Errors, kind, code string,
) {
	fault := wire.Fault{
		Status: a.Status(), Type: kind, Code: code, Message: cmp.Or(a.Detail(), a.StatusText()),
		RetryAfter: max(0, statedWait(w.Header())), // also the longer one of an outer Guard
	}
	fault.Write(w, errors)
}
