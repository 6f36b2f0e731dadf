package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// BearerToken is a hash of the token in Authorization: Bearer (RFC 6750, section 2.1). It trusts the token as it is: before
// authentication anybody makes up a new one each time, so use it after, or beside a limit on addresses. It is wrong
// where one client is given many tokens, as by refreshing: each is a key of its own, so prefer Claim. The scheme's case
// does not matter. A header that is missing, of another scheme or
// without a token is ErrNoKey. Two header lines and a malformed token are ErrAmbiguous.
func BearerToken() Func {
	const scheme = "Bearer"
	return func(r *http.Request) (string, error) {
		value, err := header(r, "Authorization")
		if err != nil {
			return "", err
		}
		rest := value[min(len(value), len(scheme)):]
		if !strings.EqualFold(value[:len(value)-len(rest)], scheme) || rest == "" || token(rest[:1]) {
			return "", fmt.Errorf("%w: Authorization has no bearer token", ErrNoKey)
		}
		// A lenient reader finds a token here even if this one does not.
		credentials := strings.TrimLeft(rest, " ")
		if rest[0] != ' ' || !token68(credentials) {
			return "", fmt.Errorf("%w: the bearer token is malformed", ErrAmbiguous)
		}
		return hash(credentials), nil
	}
}

// token68 says whether s is one of RFC 9110, section 11.2, which RFC 6750 calls b64token.
func token68(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		if (c < 'a' || c > 'z') && (s[i] < '0' || s[i] > '9') && strings.IndexByte("-._~+/", s[i]) < 0 {
			return false
		}
	}
	return s != ""
}

// Cookie is a hash of a cookie's value, such as a session's. It trusts what it reads, as Header does: anybody can send
// any cookie, so use it after the session was verified. A cookie that is missing or empty is ErrNoKey, and one that is sent more
// than once is ErrAmbiguous. With
// an invalid name every call fails.
func Cookie(name string) Func {
	if !token(name) {
		return fail(fmt.Errorf("keyfunc: Cookie: %q is not a cookie's name", name))
	}
	return func(r *http.Request) (string, error) {
		cookies := r.CookiesNamed(name)
		values := make([]string, len(cookies))
		for i, c := range cookies {
			values[i] = c.Value
		}
		value, err := single(values, name+" cookie")
		if err != nil {
			return "", err
		}
		return hash(value), nil
	}
}

// Query is a hash of a parameter of the URL's query, such as an API key. It trusts what it reads, as Header does, and is wrong
// wherever the client gains by another value. A parameter that is missing or empty is ErrNoKey.
// One that is there more than once is ErrAmbiguous, and so is every query that net/url cannot parse. With an empty name every call fails.
func Query(name string) Func {
	if name == "" {
		return fail(errors.New("keyfunc: Query: the name is empty"))
	}
	return func(r *http.Request) (string, error) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return "", fmt.Errorf("%w: the query is malformed", ErrAmbiguous)
		}
		value, err := single(query[name], name+" parameter")
		if err != nil {
			return "", err
		}
		return hash(value), nil
	}
}
