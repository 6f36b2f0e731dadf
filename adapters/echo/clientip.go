package echogate

import (
	"errors"
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/keyfunc"
)

var errNoExtractor = errors.New(
	"echogate: ClientIP: Echo.IPExtractor is nil, so echo trusts every peer")

// ClientIP returns a Func whose key is the address that e.IPExtractor finds. An IPv6 address counts
// by its /64.
//
// Set e.IPExtractor: while it is nil, c.RealIP() trusts every peer, and every call fails with an
// error that is not keyfunc.ErrNoKey. So does every call if an untrusted peer could choose its
// address by the extractor that is set. The Func tests the extractor at the first request.
//
// If the extractor trusts all hops, the key is the peer's address. echo returns the first hop,
// which the client wrote. A string that is not an address is keyfunc.ErrNoKey.
func ClientIP(e *echo.Echo) keyfunc.Func {
	extractor := sync.OnceValues(func() (keyfunc.Func, error) {
		return keyfunc.Extractor(func(r *http.Request) string { return e.IPExtractor(r) })
	})
	return func(r *http.Request) (string, error) {
		if e.IPExtractor == nil {
			return "", errNoExtractor
		}
		key, err := extractor()
		if err != nil {
			return "", err
		}
		return key(r)
	}
}
