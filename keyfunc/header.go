package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// Header is the value of a header, such as an API key. It trusts what it reads: before authentication anybody writes
// anything into it, and escapes a limit by a new value each time or spends another's by copying his. Use it after
// authentication, or as Or(Header(name), RemoteIP()) beside a limit on addresses.
//
// The key is a hash of the value (SHA-256, 128 bits), so that no secret reaches Redis and no length matters. A short or
// guessable value can still be found by trying. A header that is missing or empty is ErrNoKey. One of several
// lines is ErrAmbiguous, because another reader may take another line. Values are compared as they are spelled,
// also that of Host, which is read from Request.Host. An invalid name makes every call fail with an
// error that is not ErrNoKey: it is the program that is wrong, not the request.
func Header(name string) Func {
	if !token(name) {
		return fail(fmt.Errorf("keyfunc: Header: %q is not a header's name", name))
	}
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (string, error) {
		value, err := header(r, name)
		if err != nil {
			return "", err
		}
		return hash(value), nil
	}
}

// header is the value of a header that is there once. Its name is canonical.
func header(r *http.Request, name string) (string, error) {
	values := r.Header[name]
	if name == "Host" { // net/http keeps it apart
		values = []string{r.Host}
	}
	return single(values, name+" header")
}

// single is the only one of the values.
func single(values []string, what string) (string, error) {
	if len(values) > 1 {
		return "", fmt.Errorf("%w: several %ss", ErrAmbiguous, what)
	}
	if len(values) == 0 {
		return "", fmt.Errorf("%w: no %s", ErrNoKey, what)
	}
	value := strings.Trim(values[0], " \t")
	if value == "" {
		return "", fmt.Errorf("%w: empty %s", ErrNoKey, what)
	}
	return value, nil
}

func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// token says whether s is a token of RFC 9110, section 5.6.2.
func token(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
