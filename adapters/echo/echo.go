package echogate

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/adapters/nethttp"
)

// Config configures the middleware. The zero value is that of Middleware.
type Config struct {
	// Skipper skips the guard for the requests for which it returns true. It is a
	// middleware.Skipper. Nil skips none.
	Skipper func(echo.Context) bool
	// Refuse answers a request that is not admitted, or returns the error for the central error
	// handler. The headers are set before. Respond with the admission's Status, because not every
	// refusal is the client's fault. Nil returns an *echo.HTTPError.
	Refuse func(echo.Context, *nethttp.Admission) error
}

// Middleware applies a *nethttp.Guard, or a *nethttp.Replay around one, to the handlers after it. It
// returns a refusal as an *echo.HTTPError, so that outer middleware and the central error handler see
// it. Its Internal is the admission's Err. The body of the Guard's Dialect and its Refuse apply only if
// Config.Refuse calls Guard.Refuse.
//
// A Rule.Settle is given the status that echo's default error handler sends, because the central
// one runs later. A panic goes through. Middleware itself panics if g is not one that a constructor
// made. The middleware is safe for concurrent use.
func Middleware(g nethttp.Admitter) echo.MiddlewareFunc { return WithConfig(g, Config{}) }

// WithConfig is Middleware with a configuration.
func WithConfig(g nethttp.Admitter, cfg Config) echo.MiddlewareFunc {
	if err := g.Check(); err != nil {
		panic(err)
	}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if cfg.Skipper != nil && cfg.Skipper(c) {
				return next(c)
			}
			r := c.Request()
			setRoute(r, c)
			x := g.Admit(r)
			x.WriteHeaders(c.Response().Header())
			c.SetRequest(r.WithContext(x.WithContext(r.Context())))
			var err error = echo.ErrInternalServerError // the status if a handler panics
			defer func() {
				w := c.Response()
				if err == echo.ErrInternalServerError || !w.Committed && c.Request().Context().Err() != nil {
					x.Fail()
				}
				c.SetRequest(x.Finish(c.Request(), statusOf(w, err)))
			}()
			switch {
			case x.Allowed():
				w := c.Response()
				w.Writer = x.Writer(w.Writer)
				err = next(c)
				return err
			case cfg.Refuse != nil:
				return cfg.Refuse(c, &x.Admission)
			case x.Status() < http.StatusMultipleChoices: // nethttp.ReplayConfig.HandledStatus
				err = c.NoContent(x.Status())
				return err
			}
			return &echo.HTTPError{
				Code: x.Status(), Message: x.StatusText(), Internal: x.Err(),
			}
		}
	}
}

// setRoute sets the pattern and the path values of the route that echo has chosen. echo matches the
// escaped path if there is one. setRoute unescapes its values, so that every spelling of a value is
// one key.
func setRoute(r *http.Request, c echo.Context) {
	if c.Path() == "" {
		return
	}
	r.Pattern = c.Path()
	for i, name := range c.ParamNames() {
		value := c.ParamValues()[i]
		if plain, err := url.PathUnescape(value); r.URL.RawPath != "" && err == nil {
			value = plain
		}
		r.SetPathValue(name, value)
	}
}

// statusOf returns the status that echo's DefaultHTTPErrorHandler sends. It unwraps no error, as
// that handler does not.
func statusOf(w *echo.Response, err error) int {
	if err == nil || w.Committed {
		return w.Status
	}
	refusal, ok := err.(*echo.HTTPError)
	if !ok {
		return http.StatusInternalServerError
	}
	if inner, ok := refusal.Internal.(*echo.HTTPError); ok {
		return inner.Code
	}
	return refusal.Code
}
