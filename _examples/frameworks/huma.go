package frameworks

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/headgate/headgate/adapters/nethttp"
)

// Huma applies a Guard to an operation, or to a whole API by its UseMiddleware.
func Huma(g nethttp.Admitter) func(huma.Context, func(huma.Context)) {
	return func(c huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(c)
		guarded := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next(humago.NewContext(c.Operation(), r, w))
		}))
		guarded.ServeHTTP(w, r.WithContext(c.Context())) // values that authentication has stored
	}
}
