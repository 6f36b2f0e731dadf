package keyfunc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

type contextKey struct{}

type userID string

// expect compares the key of a request; "" is ErrNoKey, "?" is ErrAmbiguous, and "!" any other error.
func expect(t *testing.T, key keyfunc.Func, r *http.Request, want string) {
	t.Helper()
	got, err := key(r)
	switch {
	case want == "!":
		if got != "" || err == nil || errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrAmbiguous) {
			t.Errorf("got %q, %v; want an error that is not ErrNoKey", got, err)
		}
	case want == "?":
		refused(t, "expected", got, err, true)
	case got != want, (want == "") != errors.Is(err, keyfunc.ErrNoKey):
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

func TestContextValueAndClaim(t *testing.T) {
	long := strings.Repeat("x", keyfunc.MaxLen)
	var nobody *netip.Addr
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"string", "acme", "acme"},
		{"string type", userID("u1"), "u1"},
		{"integer", 42, "42"},
		{"negative integer", int64(-42), "-42"},
		{"unsigned", uint64(1 << 63), "9223372036854775808"},
		{"stringer", netip.MustParseAddr("192.0.2.1"), "192.0.2.1"},
		{"pointer to a stringer", new(netip.Addr), "invalid IP"},
		{"nil pointer", nobody, ""},
		{"whole JSON number", 1e15, "1000000000000000"},
		{"json.Number", json.Number("12345678901234567890"), "12345678901234567890"},
		{"fraction", 1.5, "!"},
		{"inexact number", 1e300, "!"},
		{"json.Number of a fraction", json.Number("1e3"), "!"},
		{"bool", true, "!"},
		{"slice", []string{"a"}, "!"},
		{"map", map[string]any{}, "!"},
		{"nil", nil, ""},
		{"empty", "", ""},
		{"as long as may be", long, long},
		{"too long", long + "x", "?"},
		{"much too long", strings.Repeat("x", 1<<20), "?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(nil)
			r = r.WithContext(context.WithValue(r.Context(), contextKey{}, c.value))
			expect(t, keyfunc.ContextValue(contextKey{}), r, c.want)
			claims := func(ctx context.Context) map[string]any { return map[string]any{"sub": ctx.Value(contextKey{})} }
			expect(t, keyfunc.Claim(claims, "sub"), r, c.want)
			expect(t, keyfunc.Claim(claims, "other"), r, "")
		})
	}
	expect(t, keyfunc.ContextValue(contextKey{}), request(nil), "")
	expect(t, keyfunc.ContextValue(nil), request(nil), "!")
	expect(t, keyfunc.Claim(func(context.Context) map[string]any { return nil }, "sub"), request(nil), "")
	expect(t, keyfunc.Claim(nil, "sub"), request(nil), "!")
}

func TestPathValue(t *testing.T) {
	for value, want := range map[string]string{
		"acme": "acme", "a/b": "a/b", "": "", strings.Repeat("x", 256): strings.Repeat("x", 256), strings.Repeat("x", 257): "?",
	} {
		expect(t, keyfunc.PathValue("tenant"), request(func(r *http.Request) { r.SetPathValue("tenant", value) }), want)
	}
	expect(t, keyfunc.PathValue("tenant"), request(nil), "")
}

func TestHMAC(t *testing.T) {
	secret := []byte("0123456789abcdef")
	key, err := keyfunc.HMAC(secret, keyfunc.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	of := func(f keyfunc.Func, peer string) string {
		got, err := f(request(func(r *http.Request) { r.RemoteAddr = peer }))
		if err != nil || len(got) != 22 {
			t.Fatalf("got %q, %v", got, err)
		}
		return got
	}
	one := of(key, "192.0.2.7:1")
	// Computed with openssl dgst -sha256 -hmac.
	if want := "n77YU26IASR3CjNgPzXpBg"; one != want {
		t.Errorf("got %q, want %q", one, want)
	}
	if of(key, "192.0.2.7:2") != one || of(key, "192.0.2.8:1") == one {
		t.Error("the keys are not those of the addresses")
	}
	other, err := keyfunc.HMAC([]byte("another secret of some length"), keyfunc.RemoteIP())
	if err != nil {
		t.Fatal(err)
	}
	if of(other, "192.0.2.7:1") == one {
		t.Error("another secret has the same key")
	}
	secret[0]++
	if of(key, "192.0.2.7:1") != one {
		t.Error("the secret is not copied")
	}
	expect(t, key, request(func(r *http.Request) { r.RemoteAddr = "@" }), "")
	empty, err := keyfunc.HMAC(secret, func(*http.Request) (string, error) { return "", nil })
	if err != nil {
		t.Fatal(err)
	}
	expect(t, empty, request(nil), "")
	_, err = keyfunc.HMAC(secret[:15], nil)
	if err == nil || !strings.Contains(err.Error(), "15 bytes") || !strings.Contains(err.Error(), "nil") {
		t.Errorf("not every fault is in %v", err)
	}
}
