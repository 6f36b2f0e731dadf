package gingate

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/adapters/nethttp"
)

// Config configures the middleware. The zero value is that of Middleware.
type Config struct {
	// Refuse answers a request that is not admitted, in place of the Guard's Config.Refuse. The
	// headers are set before, and the chain is aborted afterwards. Respond with a.Status(), because
	// not every refusal is the client's fault. Nil answers as the Guard's Config says.
	Refuse func(*gin.Context, *nethttp.Admission)
}

// Middleware applies the guard to the handlers after it. A refusal is answered as the Guard's
// Config says and aborts the chain. The guard decides with the request's context, which ends when
// the client leaves, and not with gin's, which does not. A panic goes through. Middleware itself
// panics if neither nethttp.NewGuard nor nethttp.Limit made g. The handler is safe for concurrent
// use.
func Middleware(g *nethttp.Guard) gin.HandlerFunc { return WithConfig(g, Config{}) }

// WithConfig is Middleware with a configuration.
func WithConfig(g *nethttp.Guard, cfg Config) gin.HandlerFunc {
	nethttp.Must(g, nil)
	return func(c *gin.Context) {
		if route := c.FullPath(); route != "" {
			c.Request.Pattern = route
			for _, p := range c.Params {
				c.Request.SetPathValue(p.Key, p.Value)
			}
		}
		a := g.Admit(c.Request)
		a.WriteHeaders(c.Writer.Header())
		c.Request = c.Request.WithContext(a.WithContext(c.Request.Context()))
		returned := false
		defer func() {
			status := c.Writer.Status()
			if !returned && !c.Writer.Written() { // a handler panics
				status = http.StatusInternalServerError
			}
			if !returned || !c.Writer.Written() && c.Request.Context().Err() != nil {
				a.Fail()
			}
			c.Request = a.Finish(c.Request, status)
		}()
		switch {
		case a.Allowed():
			c.Next()
		case cfg.Refuse != nil:
			cfg.Refuse(c, a)
			c.Abort()
		default:
			g.Refuse(c.Writer, c.Request, a)
			c.Abort()
		}
		returned = true
	}
}
