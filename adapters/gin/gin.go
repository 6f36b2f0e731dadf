package gingate

import (
	"bufio"
	"net"
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

// Middleware applies a *nethttp.Guard, or a *nethttp.Replay around one, to the handlers after it. A
// refusal is answered as the Guard's Config says and aborts the chain. The guard decides with the
// request's context, which ends when the client leaves, and not with gin's, which does not. A panic
// goes through. Middleware itself panics if g is not one that a constructor made. The handler is safe
// for concurrent use.
func Middleware(g nethttp.Admitter) gin.HandlerFunc { return WithConfig(g, Config{}) }

// WithConfig is Middleware with a configuration.
func WithConfig(g nethttp.Admitter, cfg Config) gin.HandlerFunc {
	if err := g.Check(); err != nil {
		panic(err)
	}
	return func(c *gin.Context) {
		if route := c.FullPath(); route != "" {
			c.Request.Pattern = route
			for _, p := range c.Params {
				c.Request.SetPathValue(p.Key, p.Value)
			}
		}
		x := g.Admit(c.Request)
		x.WriteHeaders(c.Writer.Header())
		c.Request = c.Request.WithContext(x.WithContext(c.Request.Context()))
		returned := false
		defer func() {
			status := c.Writer.Status()
			if !returned && !c.Writer.Written() { // a handler panics
				status = http.StatusInternalServerError
			}
			if !returned || !c.Writer.Written() && c.Request.Context().Err() != nil {
				x.Fail()
			}
			c.Request = x.Finish(c.Request, status)
		}()
		switch {
		case x.Allowed():
			c.Writer = &writer{ResponseWriter: c.Writer, x: x}
			c.Next()
		case cfg.Refuse != nil:
			cfg.Refuse(c, &x.Admission)
			c.Abort()
		default:
			g.Refuse(c.Writer, c.Request, &x.Admission)
			c.Abort()
		}
		returned = true
	}
}

// writer is gin's ResponseWriter, and keeps the headers that stand before the handler.
type writer struct {
	gin.ResponseWriter
	x        *nethttp.Exchange
	hijacked bool
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header {
	h := w.ResponseWriter.Header()
	w.x.KeepHeaders(h)
	if w.hijacked { // a proxy writes them to the connection
		w.x.RestoreHeaders(h, http.StatusSwitchingProtocols)
	}
	return h
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.x.RestoreHeaders(w.ResponseWriter.Header(), status)
	w.ResponseWriter.WriteHeader(status)
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.ResponseWriter.Hijack()
	w.hijacked = w.hijacked || err == nil
	return conn, rw, err
}
