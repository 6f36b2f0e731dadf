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
// If a Rule.Settle, the strikes of a BlockRule or a Replay depend on the response, Middleware has the
// central error handler answer an error of the handlers after it, as echo's RequestLogger with
// HandleError does, and then returns the error. So middleware that turns errors into others must stand
// after the guard, and an error handler of your own must do nothing when the response is committed. A
// panic goes through and counts as 500. Middleware itself panics if g is not one that a constructor
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
			c.SetRequest(r.WithContext(x.WithContext(r.Context())))
			if !x.Allowed() {
				defer func() { c.SetRequest(x.Finish(c.Request(), x.Status())) }()
				x.WriteHeaders(c.Response().Header())
				if x.Replayed() {
					g.Refuse(c.Response(), c.Request(), &x.Admission)
					return nil
				}
				return refuse(c, &x.Admission, cfg)
			}
			w, returned := c.Response(), false
			defer func() { c.SetRequest(x.FinishWritten(c.Request(), returned)) }()
			x.WriteHeaders(w.Header())
			w.Writer = x.Writer(w.Writer)
			err := next(c)
			switch {
			case err == nil || !x.Watches():
			case c.Response().Committed:
				x.Break()
			default:
				c.Error(err)
				if !c.Response().Committed { // nobody has answered the error
					x.Fail()
				}
			}
			returned = true
			return err
		}
	}
}

// refuse answers a request that is not admitted, or returns the error for the central error handler.
func refuse(c echo.Context, a *nethttp.Admission, cfg Config) error {
	switch {
	case a.Status() < http.StatusMultipleChoices: // nethttp.ReplayConfig.HandledStatus
		return c.NoContent(a.Status())
	case cfg.Refuse != nil:
		return cfg.Refuse(c, a)
	}
	return &echo.HTTPError{Code: a.Status(), Message: a.StatusText(), Internal: a.Err()}
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
