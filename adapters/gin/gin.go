package gingate

import (
	"bufio"
	"io"
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
// goes through.
//
// A Rule.Settle, the strikes of a BlockRule and a Replay see the status that stands when the handlers
// after the guard are done. If these have only added to c.Errors, it is 400 for a gin.ErrorTypeBind and
// 500 otherwise. So middleware that answers c.Errors, or a panic, with other statuses must stand after
// the guard.
//
// Middleware itself panics if g is not one that a constructor made. The handler is safe
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
		ctx := x.WithContext(c.Request.Context())
		c.Request = c.Request.WithContext(ctx)
		if !x.Allowed() {
			defer func() { c.Request = x.Finish(c.Request, x.Status()) }()
			x.WriteHeaders(c.Writer.Header())
			if cfg.Refuse != nil && !x.Replayed() && x.Status() >= http.StatusMultipleChoices {
				cfg.Refuse(c, &x.Admission)
			} else {
				g.Refuse(c.Writer, c.Request, &x.Admission)
			}
			c.Abort()
			return
		}
		w := &writer{ResponseWriter: c.Writer}
		returned := false
		defer func() {
			if w.Written() {
				x.Bypassed(w.final()) // by gin.Engine.HandleContext, which gives the handlers gin's own writer
				c.Request = x.FinishWritten(c.Request, returned)
				return
			}
			if !returned || !w.responded && ctx.Err() != nil {
				x.Fail()
			}
			c.Request = x.Finish(c.Request, w.unwritten(c, returned))
		}()
		x.WriteHeaders(c.Writer.Header())
		w.inner = x.Writer(c.Writer)
		c.Writer = w
		c.Next()
		if w.Written() && c.Errors.Last() != nil && c.IsAborted() {
			x.Break()
		}
		returned = true
	}
}

// unwritten returns the status that the client gets when the chain is done and nothing is written: gin sends
// w.Status, or a handler around the guard answers c.Errors.
func (w *writer) unwritten(c *gin.Context, returned bool) int {
	status, last := w.final(), c.Errors.Last()
	switch {
	case !returned: // a handler panics
		return http.StatusInternalServerError
	case last == nil || status >= http.StatusBadRequest:
		return status
	case last.IsType(gin.ErrorTypeBind):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// writer is gin's ResponseWriter. It sends the response by the guard's writer, which stands on gin's. gin
// sends the status with the first byte of the body, so a handler may change it until then.
type writer struct {
	gin.ResponseWriter
	inner     http.ResponseWriter
	responded bool // a handler has set a status, which gin writes when the chain is done
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header implements http.ResponseWriter.
func (w *writer) Header() http.Header { return w.inner.Header() }

// WriteHeader implements http.ResponseWriter. The guard's writer learns of an informational status, with which
// a reverse proxy deletes headers, and passes it on.
func (w *writer) WriteHeader(status int) {
	if status < http.StatusOK && status != http.StatusSwitchingProtocols {
		w.inner.WriteHeader(status)
	} else {
		w.responded = true
		w.ResponseWriter.WriteHeader(status)
	}
}

// begin is called before gin sends the header. Behind an informational status the server sends 200 by itself.
func (w *writer) begin() {
	if status := w.Status(); !w.Written() && status == w.final() {
		w.inner.WriteHeader(status)
	}
}

// final returns the status behind informational ones.
func (w *writer) final() int {
	if status := w.Status(); status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		return status
	}
	return http.StatusOK
}

// WriteHeaderNow implements gin.ResponseWriter.
func (w *writer) WriteHeaderNow() {
	w.begin()
	w.ResponseWriter.WriteHeaderNow()
}

// Write implements http.ResponseWriter.
func (w *writer) Write(p []byte) (int, error) {
	w.begin()
	return w.inner.Write(p)
}

// WriteString implements io.StringWriter.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	return io.WriteString(w.inner, s)
}

// Flush implements http.Flusher.
func (w *writer) Flush() {
	w.begin()
	w.inner.(http.Flusher).Flush()
}

// Hijack implements http.Hijacker.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return w.inner.(http.Hijacker).Hijack()
}
