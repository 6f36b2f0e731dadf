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
	x := exchangeOf(r.Context())
	if x == nil {
		return false
	}
	name := m.cfg.Downgrade(r, denied)
	if name == "" || name == x.request.Model || len(x.request.Models) > 1 || x.request.Fallbacks ||
		!x.request.InBody && !x.request.InPath {
		return false
	}
	next := *x
	next.request.Model, next.request.Models = name, []string{name}
	next.pricing, next.replaced = m.pricing(next.request.Models, x.deployed), x.request.Model
	if m.cfg.UnknownModel == UnknownModelRefuse && !next.knowsAll() {
		return false
	}
	body, at, ok := x.whole, r.URL, true
	if x.request.InBody {
		body, ok = wire.SetModel(x.whole, name)
	}
	if x.request.InPath && ok {
		at, ok = x.request.Format.SetModel(r.URL, name)
	}
	if !ok {
		return false
	}
	next.guess = next.guessOf(&next.request)
	var err error
	if next.estimate, err = m.estimate(r, &next, body); err != nil {
		return false
	}
	_ = x.body.Close() // cannot fail
	next.body, next.whole = m.bodies.hold(x.body.key, body), nil
	*x, r.URL = next, at
	x.replaceBody(r)
	return true
}

// nameModel tells the client which model answers, if it is not the one that it asked for.
func (x *exchange) nameModel(h http.Header) {
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
