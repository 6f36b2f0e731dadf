package keyfunc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// minSecret is the security of the 128 bits that are kept of a hash, in bytes.
const minSecret = 16

// HMAC is the key of another Func as HMAC-SHA256 (RFC 2104; 128 bits of it), so that who reads Redis without the secret
// learns no address, name or number. Use it for anything personal: unlike a plain hash, values cannot be found by trying them. All
// processes need the same secret, of at least 16 random bytes; another one starts every key anew. It trusts what of
// trusts, and is wrong where the secret is kept beside the data. The errors of of are its own. The secret is copied.
func HMAC(secret []byte, of Func) (Func, error) {
	var errs []error
	if len(secret) < minSecret {
		errs = append(errs, fmt.Errorf("keyfunc: HMAC: the secret has %d bytes: it must have at least %d", len(secret), minSecret))
	}
	if of == nil {
		errs = append(errs, errNil)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	secret = append([]byte(nil), secret...)
	return func(r *http.Request) (string, error) {
		key, err := of.key(r)
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]), nil
	}, nil
}

// Name is a hash of a name that its user types, such as that of a login, for a limit on guesses at one account. read finds it in
// the request. normalize makes one of all its spellings and must do what the login itself does, or another spelling of the
// same name is another key: with case folding and a Unicode form (golang.org/x/text/unicode/norm) if the login has them.
// If nil, white space around the name is cut off and strings.ToLower applied. It trusts nothing and may be wrong on purpose:
// anybody can spend the key of a name he knows, so pair it with a limit on addresses, and count failures only. An
// empty name is ErrNoKey.
func Name(read func(*http.Request) string, normalize func(string) string) Func {
	if read == nil {
		return fail(errNil)
	}
	if normalize == nil {
		normalize = func(s string) string { return strings.ToLower(strings.TrimSpace(s)) }
	}
	return func(r *http.Request) (string, error) {
		name := normalize(read(r))
		if name == "" {
			return "", fmt.Errorf("%w: no name", ErrNoKey)
		}
		return hash(name), nil
	}
}
