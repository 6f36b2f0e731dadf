// Package keyfunc says whose request it is: a Func derives from an *http.Request the key that a limit is counted on.
//
//	RemoteIP        the TCP peer: the only address that cannot be forged. For clients that connect directly.
//	TrustedProxies  the client behind proxies of yours, by X-Forwarded-For.
//	Header          an identity in a header. Only after authentication has verified it.
//	Route, Method   what is asked for.
//	Static          one key for everybody.
//	Join, Or        several keys as one; the first that is there.
//
// A request without a key is an error that wraps ErrNoKey, and never a key that it would share with others.
// Any func(*http.Request) (string, error) is a Func.
package keyfunc

import (
	"errors"
	"net/http"
)

// Func derives a key from a request. It must be safe for concurrent use. Its error is never shown to clients.
type Func func(*http.Request) (string, error)

// ErrNoKey is wrapped by the errors of a Func for a request that has nothing to make the key of.
var ErrNoKey = errors.New("keyfunc: no key")

func fail(err error) Func {
	return func(*http.Request) (string, error) { return "", err }
}
