package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxBody   = 64 << 10
	tolerance = 5 * time.Minute // between the clocks of the sender and of the receiver
)

// parseSecret returns the key of a secret of Standard Webhooks.
func parseSecret(s string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(s, "whsec_")
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(secret) < 16 {
		return nil, errors.New("WEBHOOK_SECRET must be whsec_ and at least 16 bytes in base64")
	}
	return secret, nil
}

// newSecret returns a secret of Standard Webhooks.
func newSecret() string {
	secret := make([]byte, 24)
	_, _ = rand.Read(secret) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(secret)
}

// sign returns the signature of a webhook.
func sign(secret []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// verified passes on requests whose signature is right and whose timestamp is not far from now. It
// answers others with 401. The next handler reads the body as it was signed.
func verified(secret []byte, now func() time.Time, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, "the body is too long or breaks off", http.StatusRequestEntityTooLarge)
			return
		}
		id, timestamp := r.Header.Get("Webhook-Id"), r.Header.Get("Webhook-Timestamp")
		sent, err := strconv.ParseInt(timestamp, 10, 64)
		if err != nil || now().Sub(time.Unix(sent, 0)).Abs() > tolerance || id == "" ||
			!signedBy(r.Header.Get("Webhook-Signature"), sign(secret, id, timestamp, body)) {
			http.Error(w, "the signature is wrong", http.StatusUnauthorized)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// signedBy reports whether one of the signatures in a header is the right one. A sender that
// changes its secret sends several.
func signedBy(header, right string) bool {
	for given := range strings.SplitSeq(header, " ") {
		if hmac.Equal([]byte(given), []byte(right)) {
			return true
		}
	}
	return false
}
