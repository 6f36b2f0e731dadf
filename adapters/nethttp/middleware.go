package nethttp

import "net/http"

// Handler returns a handler that applies the guard and passes admitted requests to next. A panic of
// next goes through. Handler itself panics if neither NewGuard nor Limit made g.
func (g *Guard) Handler(next http.Handler) http.Handler {
	Must(g, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := g.Admit(r)
		a.WriteHeaders(w.Header())
		if !a.Allowed() {
			g.Refuse(w, r, a)
			a.Finish(r, a.Status())
			return
		}
		inner := r.WithContext(a.WithContext(r.Context()))
		w = a.watch(w)
		returned := false
		defer func() {
			// A mux sets the pattern of the request that it is given. Outer handlers read theirs.
			r.Pattern = inner.Pattern
			if !returned || a.seen.status == 0 && inner.Context().Err() != nil {
				a.Fail()
			}
			a.Finish(inner, a.seen.code(returned))
		}()
		next.ServeHTTP(w, inner)
		returned = true
	})
}

// Middleware returns g.Handler as a middleware. Like Handler it panics if neither NewGuard nor
// Limit made g.
func Middleware(g *Guard) func(http.Handler) http.Handler { return Must(g, nil).Handler }
