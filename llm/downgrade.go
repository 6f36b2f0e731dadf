package llm

import (
	"net/http"
	"strconv"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/llm/internal/wire"
)

// ModelHeader is the header of a response from another model than the one that the client asked
// for. Its value is the name of the model, quoted as in Go unless all its bytes are printable ASCII.
const ModelHeader = "Headgate-Model"

// downgrade asks Config.Downgrade for the model of a request that was denied. It reports whether
// the request is for another model now.
func (m *Meter) downgrade(r *http.Request, denied *nethttp.Admission) bool {
	x := callOf(r.Context())
	if x == nil {
		return false
	}
	name := m.cfg.Downgrade(r, denied)
	if name == "" || name == x.request.Model || len(x.request.Models) > 1 || x.request.Fallbacks ||
		!x.request.InBody && !x.request.InPath {
		return false
	}
	at, body := *r, x.change.Undo(x.whole)
	ok := true
	if x.request.InBody {
		var change wire.Change
		change, ok = x.request.ModelChange(body, name)
		body = change.Apply(body)
	}
	if !ok {
		return false
	}
	if x.request.InPath {
		at.URL = x.request.SetModel(r.URL, name)
	}
	target, _ := wire.Find(&at, m.routes)
	next, err := m.open(&at, target, body)
	if err != nil {
		return false
	}
	next.replaced = x.request.Model
	next.given, next.guarded = x.given, x.guarded
	_ = x.body.Close() // cannot fail
	next.body = m.bodies.hold(x.body.key, body)
	next.injectUsage()
	*x, r.URL = *next, at.URL
	x.replaceBody(r)
	return true
}

// nameModel tells the client which model answers, if it is not the one that it asked for.
func (x *call) nameModel(h http.Header) {
	if x.replaced == "" {
		return
	}
	name := x.request.Model
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' {
			name = strconv.QuoteToASCII(name)
			break
		}
	}
	h.Set(ModelHeader, name)
}
