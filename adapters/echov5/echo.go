// Package echov5gate applies a nethttp.Guard to the routes of an echo v5 server. The package for echo v4 is echogate.
//
//	e.Use(middleware.Recover(), echov5gate.Middleware(guard))
//
// echo knows the route in Use, in groups and at routes, so keyfunc.Route and keyfunc.PathValue work there; in Pre it
// does not yet. Handlers read the decision with nethttp.FromContext(c.Request().Context()), or the whole admission with
// c.Get(echov5gate.Key).
package echov5gate

import (
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/keyfunc"
)

// Key is where echo's context has the *nethttp.Admission of the innermost Guard, of refused requests too.
const Key = "headgate"

// Config configures the middleware. The zero value is that of Middleware.
type Config struct {
	// Skipper exempts a request from the whole guard, if not nil. It is a middleware.Skipper.
	Skipper func(*echo.Context) bool
	// Refuse answers a request that is not admitted, if not nil, or returns the error that the central error handler
	// answers. The headers are set before, and may be changed. Answer with the status of the admission, because
	// not every refusal is the caller's fault.
	Refuse func(*echo.Context, *nethttp.Admission) error
}

// Middleware applies the guard to the handlers after it. A refusal is an *echo.HTTPError that is returned, so that outer
// middleware and the central error handler see it; it wraps what went wrong, if anything did. The Guard's
// Config.Refusal and Refuse do not count: a Refuse that calls Guard.Refuse answers as they say. A panic goes through. A Rule.Settle is told the status of
// echo's default error handler, before the central one answers. It is safe for concurrent use.
func Middleware(g *nethttp.Guard) echo.MiddlewareFunc { return WithConfig(g, Config{}) }

// WithConfig is Middleware with a configuration.
func WithConfig(g *nethttp.Guard, cfg Config) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			if cfg.Skipper != nil && cfg.Skipper(c) {
				return next(c)
			}
			r := c.Request() // echo has set its pattern
			setPathValues(r, c)
			a := g.Admit(r)
			a.WriteHeaders(c.Response().Header())
			c.Set(Key, a)
			c.SetRequest(r.WithContext(a.WithContext(r.Context())))
			var err error = echo.ErrInternalServerError // if it panics
			defer func() {
				_, status := echo.ResolveResponseStatus(c.Response(), err)
				c.SetRequest(a.Finish(c.Request(), status))
			}()
			switch {
			case a.Allowed():
				err = next(c)
				return err
			case cfg.Refuse != nil:
				return cfg.Refuse(c, a)
			}
			refusal := echo.NewHTTPError(a.Status(), http.StatusText(a.Status()))
			if err := a.Err(); err != nil {
				return refusal.Wrap(err)
			}
			return refusal
		}
	}
}

// setPathValues unescapes values that the router left escaped, so that every spelling of a value is
// one key. echo does not tell whether its router is configured to match on the escaped path or to
// unescape values. They are still escaped if filling them into the route yields the escaped path.
func setPathValues(r *http.Request, c *echo.Context) {
	values := c.PathValues()
	escaped := false
	if r.URL.RawPath != "" && len(values) > 0 {
		inRoute := make([]any, len(values))
		for i, p := range values {
			inRoute[i] = p.Value
		}
		escaped = c.RouteInfo().Reverse(inRoute...) == r.URL.RawPath
	}
	for _, p := range values {
		value := p.Value
		if plain, err := url.PathUnescape(value); escaped && err == nil {
			value = plain
		}
		r.SetPathValue(p.Name, value)
	}
}

// ClientIP is the address that c.RealIP() finds, an IPv6 address by its /64: of e.IPExtractor, or while that is nil of
// the TCP peer. Where a stranger would be believed, as by LegacyIPExtractor, every call fails with an error that is not
// keyfunc.ErrNoKey. What is not an address is keyfunc.ErrNoKey. Where all hops are trusted the key is the peer's, and not
// echo's, which is the first of them and what the client wrote.
func ClientIP(e *echo.Echo) keyfunc.Func {
	found := sync.OnceValues(func() (keyfunc.Func, error) { // by the first request the server is set up
		return keyfunc.Extractor(func(r *http.Request) string {
			if e.IPExtractor != nil {
				return e.IPExtractor(r)
			}
			host, _, _ := net.SplitHostPort(r.RemoteAddr) // as c.RealIP does; what has no port is no peer of a server
			return host
		})
	})
	return func(r *http.Request) (string, error) {
		key, err := found()
		if err != nil {
			return "", err
		}
		return key(r)
	}
}
