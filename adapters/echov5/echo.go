package echov5gate

import (
	"net/http"
	"net/url"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/adapters/nethttp"
)

// Config configures the middleware. The zero value is that of Middleware.
type Config struct {
	// Skipper skips the guard for the requests for which it returns true. It is a
	// middleware.Skipper. Nil skips none.
	Skipper func(*echo.Context) bool
	// Refuse answers a request that is not admitted, or returns the error for the central error
	// handler. The headers are set before. Respond with the admission's Status, because not every
	// refusal is the client's fault. Nil returns an *echo.HTTPError.
	Refuse func(*echo.Context, *nethttp.Admission) error
}

// Middleware applies a *nethttp.Guard, or a *nethttp.Replay around one, to the handlers after it. It
// returns a refusal as an *echo.HTTPError, so that outer middleware and the central error handler see
// it. The error wraps the admission's Err. The body of the Guard's Dialect and its Refuse apply only if
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
		return func(c *echo.Context) error {
			if cfg.Skipper != nil && cfg.Skipper(c) {
				return next(c)
			}
			r := c.Request() // echo has set its pattern
			setPathValues(r, c)
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
			returned := false
			defer func() { c.SetRequest(x.FinishWritten(c.Request(), returned)) }()
			x.WriteHeaders(c.Response().Header())
			if w, ok := c.Response().(*echo.Response); ok {
				w.ResponseWriter = x.Writer(w.ResponseWriter)
			} else { // such as that of a HEAD request, which writes when the route's middleware is done
				defer c.SetResponse(c.Response())
				c.SetResponse(x.Writer(c.Response()))
			}
			err := next(c)
			switch {
			case err == nil || !x.Watches():
			case committed(c):
				x.Break()
			default:
				c.Echo().HTTPErrorHandler(c, err)
				if !committed(c) { // nobody has answered the error
					x.Fail()
				}
			}
			returned = true
			return err
		}
	}
}

func committed(c *echo.Context) bool {
	w, err := echo.UnwrapResponse(c.Response())
	return err == nil && w.Committed
}

// refuse answers a request that is not admitted, or returns the error for the central error handler.
func refuse(c *echo.Context, a *nethttp.Admission, cfg Config) error {
	switch {
	case a.Status() < http.StatusMultipleChoices: // nethttp.ReplayConfig.HandledStatus
		return c.NoContent(a.Status())
	case cfg.Refuse != nil:
		return cfg.Refuse(c, a)
	}
	refusal := echo.NewHTTPError(a.Status(), a.StatusText())
	if err := a.Err(); err != nil {
		return refusal.Wrap(err)
	}
	return refusal
}

// setPathValues sets the path values of the route that echo has chosen. It unescapes values that
// the router left escaped, so that every spelling of a value is one key. echo does not tell whether
// its router is configured to match the escaped path or to unescape values. They are still escaped
// if filling them into the route yields the escaped path.
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
