package gingate

import (
	"net/http"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"

	"github.com/headgate/headgate/keyfunc"
)

// ClientIP returns a Func whose key is the address that c.ClientIP() finds. An IPv6 address counts
// by its /64.
//
// Call engine.SetTrustedProxies with your proxies or nil first: by default gin trusts every peer,
// and TrustedPlatform and AppEngine always do; use keyfunc.TrustedHeader instead of
// TrustedPlatform. If an untrusted peer could choose its address, every call fails with an error
// that is not keyfunc.ErrNoKey. The Func tests the engine's settings at the first request.
//
// If gin trusts all hops, the key is the peer's address. gin returns the first hop, which the
// client wrote. A string that is not an address is keyfunc.ErrNoKey.
func ClientIP(engine *gin.Engine) keyfunc.Func {
	pool := sync.Pool{New: func() any { return gin.CreateTestContextOnly(nil, engine) }}
	extractor := sync.OnceValues(func() (keyfunc.Func, error) {
		return keyfunc.Extractor(func(r *http.Request) string {
			c := pool.Get().(*gin.Context) // only a gin context has ClientIP
			defer pool.Put(c)
			c.Request = joinLines(r, engine.RemoteIPHeaders)
			defer func() { c.Request = nil }()
			return c.ClientIP()
		}, append([]string{engine.TrustedPlatform}, engine.RemoteIPHeaders...)...)
	})
	return func(r *http.Request) (string, error) {
		key, err := extractor()
		if err != nil {
			return "", err
		}
		return key(r)
	}
}

// joinLines joins the lines of each header into one. gin reads only the first line, which the
// client wrote if a proxy has added its own.
func joinLines(r *http.Request, names []string) *http.Request {
	for _, name := range names {
		if lines := r.Header.Values(name); len(lines) > 1 {
			r = &http.Request{RemoteAddr: r.RemoteAddr, Header: r.Header.Clone()}
			r.Header.Set(name, strings.Join(lines, ","))
		}
	}
	return r
}
