package chigate

import (
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/keyfunc"
)

// Middleware applies a *nethttp.Guard, or a *nethttp.Replay around one, to the handlers it wraps.
// It is nethttp.Guard.Handler with chi's route: a refusal is answered as the Guard's Config says,
// the ResponseWriter is passed on, and a panic goes through. Around a handler that is no chi
// router, and outside of one, requests have no route. Middleware itself panics if g is not one that
// a constructor made. The middleware is safe for concurrent use.
func Middleware(g nethttp.Admitter) func(http.Handler) http.Handler {
	if err := g.Check(); err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		inner, _ := next.(chi.Routes)
		next = g.Handler(next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			setRoute(r, inner)
			next.ServeHTTP(w, r)
		})
	}
}

// ClientIP returns a Func whose key is the address that one of chi's ClientIPFrom* middlewares
// chose. An IPv6 address counts by its /64.
//
// It trusts that middleware. ClientIPFromXFF, ClientIPFromXFFTrustedProxies and ClientIPFromHeader
// do not check the peer, so they are wrong if clients can reach the server without the proxies.
// Never put middleware.RealIP in front: it overwrites the peer's address with what clients write,
// so that keyfunc.RemoteIP and keyfunc.TrustedProxies can be forged.
//
// Without such a middleware in front, or if it found no address, the error is keyfunc.ErrNoKey.
func ClientIP() keyfunc.Func {
	return keyfunc.Must(keyfunc.Address(func(r *http.Request) string {
		return middleware.GetClientIP(r.Context())
	}))
}
