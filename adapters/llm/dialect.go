package llm

import (
	"cmp"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
)

// dialectOf returns the Dialect of the server that the clients of a format expect.
func dialectOf(f Format, within time.Duration) nethttp.Dialect {
	if f == FormatAnthropicMessages {
		return Anthropic{RetryWithin: within}
	}
	return OpenAI{RetryWithin: within}
}

// patience returns the longest wait that a client should sit out.
func patience(within time.Duration) time.Duration { return cmp.Or(within, time.Minute) }

// writeRefusal answers a refused request with the error object of a format. Anthropic's has no
// code, and its type follows from the status.
func writeRefusal(
	w http.ResponseWriter, r *http.Request, a *nethttp.Admission, f wire.Format, kind, code string,
) {
	fault := wire.Fault{
		Status: a.Status(), Type: kind, Code: code, Message: cmp.Or(a.Detail(), a.StatusText()),
	}
	fault.Write(w, r, f)
}
