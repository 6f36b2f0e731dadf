package llm

import (
	"cmp"
	"net/http"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/adapters/nethttp"
)

// writeRefusal answers a refused request with the error object of a format. Anthropic's has no code,
// and its type follows from the status.
func writeRefusal(
	w http.ResponseWriter, r *http.Request, a *nethttp.Admission, f wire.Format, kind, code string,
) {
	fault := wire.Fault{
		Status: a.Status(), Type: kind, Code: code, Message: cmp.Or(a.Detail(), a.StatusText()),
	}
	fault.Write(w, r, f)
}
