package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// Header returns a Func whose key is a hash of a header's value, such as an API key.
//
// It trusts the value, so use it behind the middleware that authenticates it. Before
// authentication a client escapes the limit with a new value for each request, and spends another
// client's limit by copying its value. For addresses in X-Forwarded-For use TrustedProxies.
//
// The hash (SHA-256, 128 bits) keeps secrets out of Redis and bounds the length, but a short or
// guessable value can still be found by trying. Values are compared byte by byte, without the
// spaces and tabs around them. Host is read from Request.Host.
//
// Idempotency-Key is a string of structured fields (draft-ietf-httpapi-idempotency-key-header-07).
// Many clients omit its quotes, so the key is the same with and without them.
//
// A missing or empty header is ErrNoKey. Several lines of the header are ErrAmbiguous, because the
// authentication may have read another line, and so is a blank value. An invalid header name is an
// error.
func Header(name string) (Func, error) {
	if !isToken(name) {
		return nil, fmt.Errorf("keyfunc: Header: %q is not a header name", name)
	}
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		value, err := header(r, name)
		if name == "Idempotency-Key" {
			value = unquote(value)
		}
		return hash(value, err)
	}, nil
}

// unquote returns the content of a string of structured fields (RFC 9651, section 3.3.3), without
// its parameters. Any other value is its own content.
func unquote(value string) string {
	content, rest, ok := quoted(value)
	if !ok || content == "" || rest != "" && rest[0] != ';' {
		return value
	}
	return content
}

// quoted returns the content of a quoted string (RFC 9110, section 5.6.4) with which s begins, and what
// follows it.
func quoted(s string) (content, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", "", false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:], true
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// header returns the value of a header that has exactly one line. The name must be canonical.
func header(r *http.Request, name string) (string, error) {
	values := r.Header[name]
	if name == "Host" { // net/http moves it out of the map
		values = []string{r.Host}
	}
	return single(values, name+" header")
}

// single returns the only value, trimmed. The noun names it in errors.
func single(values []string, noun string) (string, error) {
	if len(values) > 1 {
		return "", fmt.Errorf("%w: several %ss", ErrAmbiguous, noun)
	}
	if len(values) == 0 {
		return "", fmt.Errorf("%w: no %s", ErrNoKey, noun)
	}
	if values[0] == "" {
		return "", fmt.Errorf("%w: empty %s", ErrNoKey, noun)
	}
	value := strings.Trim(values[0], " \t")
	if value == "" { // the handler reads the white space
		return "", fmt.Errorf("%w: blank %s", ErrAmbiguous, noun)
	}
	return value, nil
}

// hash returns the key of a value that may be secret, or the error of reading it.
func hash(s string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.EncodeToString(sum[:16]), nil
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	other := func(c rune) bool { return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c) }
	return s != "" && !strings.ContainsFunc(s, other)
}
