package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// BearerToken returns a Func whose key is a hash of the token in Authorization: Bearer (RFC 6750,
// section 2.1).
//
// It trusts the token, as Header does, so use it behind authentication or beside a limit on
// addresses. It is wrong if one client gets many tokens, for example by refreshing them: each token
// is a key of its own, so prefer Claim.
//
// The case of the scheme does not matter. A missing header, another scheme and a scheme without a
// token are ErrNoKey. Several header lines and a malformed token are ErrAmbiguous.
func BearerToken() Func {
	const scheme = "Bearer"
	return func(r *http.Request) (string, error) {
		value, err := header(r, "Authorization")
		if err != nil {
			return "", err
		}
		rest := value[min(len(value), len(scheme)):]
		given := value[:len(value)-len(rest)]
		if !strings.EqualFold(given, scheme) || rest == "" || isToken(rest[:1]) {
			return "", fmt.Errorf("%w: Authorization has no bearer token", ErrNoKey)
		}
		// The handler may parse less strictly and find a token in the rest.
		credentials := strings.TrimLeft(rest, " ")
		if rest[0] != ' ' || !isToken68(credentials) {
			return "", fmt.Errorf("%w: the bearer token is malformed", ErrAmbiguous)
		}
		return hash(credentials, nil)
	}
}

// token68 has the characters of a token68 of RFC 9110, section 11.2.
const token68 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/"

// isToken68 reports whether s is a token68. RFC 6750 calls it b64token.
func isToken68(s string) bool {
	s = strings.TrimRight(s, "=")
	return s != "" && strings.Trim(s, token68) == ""
}

// Cookie returns a Func whose key is a hash of a cookie's value, such as a session ID.
//
// It trusts the value, as Header does: a client can send any cookie, so use it behind the
// middleware that verifies the session. A missing or empty cookie is ErrNoKey. Several cookies of
// the name are ErrAmbiguous, and so is a blank value. An invalid cookie name is an error.
func Cookie(name string) (Func, error) {
	if !isToken(name) {
		return nil, fmt.Errorf("keyfunc: Cookie: %q is not a cookie name", name)
	}
	return func(r *http.Request) (string, error) {
		cookies := r.CookiesNamed(name)
		values := make([]string, len(cookies))
		for i, c := range cookies {
			values[i] = c.Value
		}
		return hash(single(values, name+" cookie"))
	}, nil
}

// Query returns a Func whose key is a hash of a parameter in the URL's query, such as an API key.
//
// It trusts the value, as Header does, and is wrong wherever a client gains by sending another one.
// A missing or empty parameter is ErrNoKey. Several parameters of the name and a blank value are
// ErrAmbiguous, and so is every query that url.ParseQuery rejects. An empty name is an error.
func Query(name string) (Func, error) {
	if name == "" {
		return nil, errors.New("keyfunc: Query: the name is empty")
	}
	return func(r *http.Request) (string, error) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", fmt.Errorf("%w: the query is malformed", ErrAmbiguous)
		}
		return hash(single(query[name], name+" parameter"))
	}, nil
}
