package keyfunc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
)

// minSecret is the shortest secret in bytes: as strong as the 128 bits that HMAC keeps.
const minSecret = 16

// HMAC returns a Func whose key is the HMAC-SHA256 (RFC 2104, 128 bits) of the key of inner. A
// reader of Redis without the secret learns no address, name or number. Use it for everything
// personal: unlike the values behind a plain hash, these cannot be found by trying.
//
// All processes need the same secret of at least 16 random bytes. A new secret starts every key
// anew. HMAC trusts what inner trusts, returns inner's errors, and is wrong if the secret is stored
// beside the data. It copies the secret. A short secret and a nil Func are errors.
func HMAC(secret []byte, inner Func) (Func, error) {
	err := errors.Join(
		faultIf(len(secret) < minSecret, "HMAC: the secret has %d bytes, fewer than %d", len(secret), minSecret),
		faultIf(inner == nil, "HMAC: inner is nil"),
	)
	if err != nil {
		return nil, err
	}
	secret = slices.Clone(secret)
	return func(r *http.Request) (string, error) {
		key, err := inner.key(r)
		if err != nil {
			return "", err
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(key))
		return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]), nil
	}, nil
}
