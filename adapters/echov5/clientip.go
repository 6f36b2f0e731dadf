package echov5gate

import (
	"net"
	"net/http"
	"sync"

	"github.com/labstack/echo/v5"

	"github.com/headgate/headgate/keyfunc"
)

// ClientIP returns a Func whose key is the address that c.RealIP() finds: by e.IPExtractor, or,
// while that is nil, the address of the TCP peer. An IPv6 address counts by its /64.
//
// If an untrusted peer could choose its address, as by LegacyIPExtractor, every call fails with an
// error that is not keyfunc.ErrNoKey. The Func tests the extractor at the first request.
//
// If the extractor trusts all hops, the key is the peer's address. echo returns the first hop,
// which the client wrote. A string that is not an address is keyfunc.ErrNoKey.
func ClientIP(e *echo.Echo) keyfunc.Func {
	extractor := sync.OnceValues(func() (keyfunc.Func, error) {
		return keyfunc.Extractor(func(r *http.Request) string {
			if e.IPExtractor != nil {
				return e.IPExtractor(r)
			}
			host, _, _ := net.SplitHostPort(r.RemoteAddr) // as c.RealIP does
			return host
		})
	})
	return func(r *http.Request) (string, error) {
		key, err := extractor()
		if err != nil {
			return "", err
		}
		return key(r)
	}
}
