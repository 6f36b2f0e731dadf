package llm

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/headgate/headgate/adapters/nethttp"
)

// writeError answers a refused request with a JSON document.
func writeError(w http.ResponseWriter, r *http.Request, status int, document any) {
	body, err := json.Marshal(document)
	if err != nil {
		body = []byte("{}") // structs of strings always marshal
	}
	body = append(body, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client may be gone
	}
}

// messageOf returns what a refusal tells in words.
func messageOf(a *nethttp.Admission) string { return cmp.Or(a.Detail(), a.StatusText()) }
