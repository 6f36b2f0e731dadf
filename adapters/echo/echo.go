// Package echogate applies a nethttp.Guard to the routes of an echo v4 server. The package for echo v5 is echov5gate.
//
//	e.Use(middleware.Recover(), echogate.Middleware(guard))
//
// echo knows the route in Use, in groups and at routes, so keyfunc.Route and keyfunc.PathValue work there, and not in Pre. Handlers
// read the decision with nethttp.FromContext(c.Request().Context()), or the whole admission with c.Get(echogate.Key).
package echogate

import (
	"errors"
	"net/http"
	"net/url"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/keyfunc"
)

// Key is where echo's context has the *nethttp.Admission of the innermost Guard, of refused requests too.
const Key = "headgate"

// Config configures the middleware. The zero value is that of Middleware.
type Config struct {
	// Skipper exempts a request from the whole guard, if not nil. It is a middleware.Skipper.
	Skipper func(echo.Context) bool
	// Refuse answers a request that is not admitted, if not nil, or returns the error that the central error handler
	// answers. The headers are set before. Not every refusal is the caller's fault: see the admission's Status.
	Refuse func(echo.Context, *nethttp.Admission) error
}

// Middleware applies the guard to the handlers after it. A refusal is an *echo.HTTPError that is returned, so that outer
// middleware and the central error handler see it; its Internal is what went wrong, if anything did. The Guard's
// Config.Refusal and Refuse do not count: a Refuse that calls Guard.Refuse answers as they say. A panic goes through. A Rule.Settle is told the status of
// echo's default error handler, before the central one answers. It is safe for concurrent use.
func Middleware(g *nethttp.Guard) echo.MiddlewareFunc { return WithConfig(g, Config{}) }

// WithConfig is Middleware with a configuration.
func WithConfig(g *nethttp.Guard, cfg Config) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if cfg.Skipper != nil && cfg.Skipper(c) {
				return next(c)
			}
			r := c.Request()
			if c.Path() != "" {
				r.Pattern = c.Path()
				for i, name := range c.ParamNames() {
					value := c.ParamValues()[i]
					// echo matches on the escaped path if there is one. Every spelling of a value must be one key.
					if plain, err := url.PathUnescape(value); r.URL.RawPath != "" && err == nil {
						value = plain
					}
					r.SetPathValue(name, value)
				}
			}
			a := g.Admit(r)
			a.WriteHeaders(c.Response().Header())
			c.Set(Key, a)
			c.SetRequest(r.WithContext(a.WithContext(r.Context())))
			var err error = echo.ErrInternalServerError // if it panics
			defer func() { c.SetRequest(a.Finish(c.Request(), statusOf(c.Response(), err))) }()
			switch {
			case a.Allowed():
				err = next(c)
				return err
			case cfg.Refuse != nil:
				return cfg.Refuse(c, a)
			}
			return &echo.HTTPError{Code: a.Status(), Message: http.StatusText(a.Status()), Internal: a.Err()}
		}
	}
}

// statusOf is what the client sees, as echo's DefaultHTTPErrorHandler answers, which unwraps no error.
func statusOf(w *echo.Response, err error) int {
	if err == nil || w.Committed {
		return w.Status
	}
	refused, ok := err.(*echo.HTTPError)
	if !ok {
		return http.StatusInternalServerError
	}
	if inner, ok := refused.Internal.(*echo.HTTPError); ok {
		return inner.Code
	}
	return refused.Code
}

var errExtractor = errors.New("echogate: ClientIP: Echo.IPExtractor is nil, so that everybody would be believed")

// ClientIP is the address that e.IPExtractor finds, an IPv6 address by its /64. Its condition is that one is set: while
// it is nil, where c.RealIP() believes everybody, and where a stranger would be believed by the one that is set, every call
// fails with an error that is not keyfunc.ErrNoKey. What is not an address is keyfunc.ErrNoKey. Where all
// hops are trusted the key is the peer's, and not echo's, which is the first of them and what the client wrote.
func ClientIP(e *echo.Echo) keyfunc.Func {
	found := sync.OnceValues(func() (keyfunc.Func, error) { // by the first request the server is set up
		return keyfunc.Extractor(func(r *http.Request) string { return e.IPExtractor(r) })
	})
	return func(r *http.Request) (string, error) {
		if e.IPExtractor == nil {
			return "", errExtractor
		}
		key, err := found()
		if err != nil {
			return "", err
		}
		return key(r)
	}
}
