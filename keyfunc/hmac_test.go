package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestHMAC(t *testing.T) {
	secret := []byte("0123456789abcdef")
	hidden := keyfunc.Must(keyfunc.HMAC(secret, keyfunc.RemoteIP()))
	from := func(peer string) *http.Request {
		return request(func(r *http.Request) { r.RemoteAddr = peer })
	}
	const want = "n77YU26IASR3CjNgPzXpBg" // of openssl dgst -sha256 -hmac
	expect(t, hidden, from("192.0.2.7:1"), want)
	expect(t, hidden, from("192.0.2.7:2"), want)
	if other, err := hidden(from("192.0.2.8:1")); other == want || err != nil {
		t.Errorf("another address: got %q, %v", other, err)
	}
	bySecret := keyfunc.Must(keyfunc.HMAC([]byte("another secret of some length"), keyfunc.RemoteIP()))
	if other, err := bySecret(from("192.0.2.7:1")); other == want || err != nil {
		t.Errorf("another secret: got %q, %v", other, err)
	}

	secret[0]++ // HMAC has its own copy
	expect(t, hidden, from("192.0.2.7:1"), want)
}
