// Package keyfunc says whose request it is: a Func derives from an *http.Request the key that a limit is counted on.
//
// The client's address:
//
//	RemoteIP        the TCP peer: the only address that cannot be forged. For clients that connect directly.
//	TrustedProxies  the client behind proxies of yours, by X-Forwarded-For.
//	Forwarded       the same by Forwarded (RFC 7239), where your proxies write that and remove their clients'.
//	TrustedHops     the client a fixed number of proxies away, whose addresses are not known.
//	TrustedHeader   the client as your proxy tells it in a header of its own, such as CF-Connecting-IP.
//	Address         the client as another middleware has found it.
//	Extractor       the client as a framework's extractor finds it, which is tried out first.
//
// IPv6 addresses count by their /64; [IPv6Prefix] makes all of these with another prefix.
//
// Who it is, once authentication has verified it:
//
//	ContextValue    what the authentication put into the request's context.
//	Claim           a claim of the token that it has verified.
//	Header, Cookie, Query, BearerToken   what the request carries, hashed.
//	Name            what its user types, such as a login's name, in one spelling.
//
// What is asked for, and combinations:
//
//	Route, Method, PathValue   the route, the method, a part of the path.
//	Static          one key for everybody.
//	Join, Or        several keys as one; the first that is there.
//	HMAC            another key that only who has the secret can compute, for what is personal.
//
// A request without a key is an error that wraps ErrNoKey, and never a key that it would share with others. No value
// that a client sends becomes more than [MaxLen] bytes of a key: what would be longer is ErrNoKey or was hashed. Any
// func(*http.Request) (string, error) is a Func.
package keyfunc

import (
	"errors"
	"net/http"
)

// Func derives a key from a request. It must be safe for concurrent use. Its error is never shown to clients.
type Func func(*http.Request) (string, error)

// ErrNoKey is wrapped by the errors of a Func for a request that has nothing to make the key of.
var ErrNoKey = errors.New("keyfunc: no key")

// ErrAmbiguous matches the error of a Func for a request that carries a key but leaves open which one:
// the value is sent more than once, is malformed or is longer than MaxLen. The handler may read a value
// there, so the request must not be treated as one without a key. The error never matches ErrNoKey.
var ErrAmbiguous = errors.New("keyfunc: ambiguous key")

// MaxLen is the length in bytes of the longest value that becomes a key unhashed.
const MaxLen = 256

func fail(err error) Func {
	return func(*http.Request) (string, error) { return "", err }
}
