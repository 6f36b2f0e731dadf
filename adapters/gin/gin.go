// Package gingate applies a nethttp.Guard to the routes of a gin engine.
//
//	engine.Use(gin.Recovery(), gingate.Middleware(guard))
//
// gin knows the route before its middleware runs, so keyfunc.Route and keyfunc.PathValue work in Use of the engine and of any group.
// A path value is that of c.Param. It is unescaped, unless the engine has UseRawPath and not UnescapePathValues: then one
// value has several spellings, and each is a key of its own.
// Requests without a route pass through the engine's middleware only, and those that gin redirects through none. Handlers read the
// decision with nethttp.FromContext(c.Request.Context()), or the whole admission with c.Get(gingate.Key).
package gingate

import (
	"net/http"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/keyfunc"
)

// Key is where gin's context has the *nethttp.Admission of the innermost Guard, of refused requests too.
const Key = "headgate"

// Config configures the middleware. The zero value is that of Middleware.
type Config struct {
	// Refuse answers a request that is not admitted, if not nil, instead of the Guard's Config.Refuse. The headers are set
	// before, and the chain is aborted after. Not every refusal is the caller's fault: c.JSON(a.Status(), ...).
	Refuse func(*gin.Context, *nethttp.Admission)
}

// Middleware applies the guard to the handlers after it. A refusal is answered as the Guard's Config says and aborts the
// chain. It decides with the request's context, which ends with the client, and never with gin's, which does not. A
// panic goes through. It is safe for concurrent use.
func Middleware(g *nethttp.Guard) gin.HandlerFunc { return WithConfig(g, Config{}) }

// WithConfig is Middleware with a configuration.
func WithConfig(g *nethttp.Guard, cfg Config) gin.HandlerFunc {
	return func(c *gin.Context) {
		if route := c.FullPath(); route != "" {
			c.Request.Pattern = route
			for _, p := range c.Params {
				c.Request.SetPathValue(p.Key, p.Value)
			}
		}
		a := g.Admit(c.Request)
		a.WriteHeaders(c.Writer.Header())
		c.Set(Key, a)
		c.Request = c.Request.WithContext(a.WithContext(c.Request.Context()))
		returned := false
		defer func() {
			status := c.Writer.Status()
			if !returned && !c.Writer.Written() { // it panics
				status = http.StatusInternalServerError
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

// ClientIP is the address that gin's c.ClientIP() finds, an IPv6 address by its /64. Its condition is that
// engine.SetTrustedProxies names the proxies that are yours, or nil: by default gin believes everybody, and TrustedPlatform
// and AppEngine always do. Where a stranger would be believed, every call fails with an error that is not keyfunc.ErrNoKey; use
// keyfunc.TrustedHeader instead of TrustedPlatform. What is not an address is keyfunc.ErrNoKey. Where all hops are trusted
// the key is the peer's, and not gin's, which is the first of them and what the client wrote.
func ClientIP(engine *gin.Engine) keyfunc.Func {
	pool := sync.Pool{New: func() any { return gin.CreateTestContextOnly(nil, engine) }}
	found := sync.OnceValues(func() (keyfunc.Func, error) { // by the first request the engine is set up
		return keyfunc.Extractor(func(r *http.Request) string {
			c := pool.Get().(*gin.Context) // c.ClientIP is a method of the context alone
			defer pool.Put(c)
			c.Request = oneLine(r, engine.RemoteIPHeaders)
			defer func() { c.Request = nil }()
			return c.ClientIP()
		}, append([]string{engine.TrustedPlatform}, engine.RemoteIPHeaders...)...)
	})
	return func(r *http.Request) (string, error) {
		key, err := found()
		if err != nil {
			return "", err
		}
		return key(r)
	}
}

// oneLine joins the lines of headers to which a proxy has added its own, because gin reads only the first, the client's.
func oneLine(r *http.Request, names []string) *http.Request {
	for _, name := range names {
		if lines := r.Header.Values(name); len(lines) > 1 {
			r = &http.Request{RemoteAddr: r.RemoteAddr, Header: r.Header.Clone()}
			r.Header.Set(name, strings.Join(lines, ","))
		}
	}
	return r
}
