package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func TestHeader(t *testing.T) {
	key := keyfunc.Must(keyfunc.Header("x-api-key"))
	with := func(lines ...string) *http.Request {
		return request(func(r *http.Request) { r.Header["X-Api-Key"] = lines })
	}
	secret, err := key(with("secret"))
	if err != nil || len(secret) != 22 || strings.Contains(secret, "secret") {
		t.Errorf("got %q, %v; want a hash", secret, err)
	}
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"spaces around", []string{"  secret\t"}, secret},
		{"missing", nil, noKey},
		{"empty", []string{""}, noKey},
		{"blank", []string{" \t"}, ambiguous},
		{"two lines", []string{"secret", "other"}, ambiguous},
		{"the same line twice", []string{"secret", "secret"}, ambiguous},
		{"an empty line before", []string{"", "secret"}, ambiguous},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, key, with(c.lines...), c.want) })
	}
	if other, _ := key(with("Secret")); other == secret {
		t.Error("another value has the same key")
	}
	if long, err := key(with(strings.Repeat("x", 1<<20))); err != nil || len(long) != 22 {
		t.Errorf("1 MiB: %d bytes, %v", len(long), err)
	}
}

func TestHeaderReadsHostFromRequest(t *testing.T) {
	host := keyfunc.Must(keyfunc.Header("host"))
	got, err := host(request(func(r *http.Request) { r.Host = "example.com" }))
	if err != nil || len(got) != 22 {
		t.Errorf("got %q, %v; want a hash", got, err)
	}
	expect(t, host, request(func(r *http.Request) { r.Host = "" }), noKey)
}

// A client that adds header lines never gets a key of its choice, nor none.
func FuzzHeader(f *testing.F) {
	for _, s := range []string{"a", "", "a\nb", "\na", " \t\n", "a, b"} {
		f.Add(s)
	}
	key := keyfunc.Must(keyfunc.Header("X-Api-Key"))
	f.Fuzz(func(t *testing.T, s string) {
		lines := strings.Split(s, "\n")
		got, err := key(request(func(r *http.Request) { r.Header["X-Api-Key"] = lines }))
		outcome := outcomeOf(got, err)
		switch {
		case len(lines) > 1 && outcome != ambiguous,
			len(lines) == 1 && s == "" && outcome != noKey,
			len(lines) == 1 && s != "" && outcome == noKey:
			t.Fatalf("%q: got %q, %v", lines, got, err)
		}
	})
}

// Clients send an Idempotency-Key with the quotes of its draft and without them.
func TestIdempotencyKeyWithoutQuotes(t *testing.T) {
	key := func(name, value string) string {
		return core.Must(keyfunc.Must(keyfunc.Header(name))(request(func(r *http.Request) { r.Header.Set(name, value) })))
	}
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"idempotency-key", `8e03`, `"8e03"`, true},
		{"Idempotency-Key", `"8e03"`, `"8e03";v=1`, true},
		{"Idempotency-Key", `a"b`, `"a\"b"`, true},
		{"Idempotency-Key", `8e03`, `"8e04"`, false},
		{"Idempotency-Key", `8e03`, `"8e03`, false},
		{"Idempotency-Key", `8e03`, `"8e03"x`, false},
		{"Idempotency-Key", `""`, `"`, false},
		{"X-Api-Key", `8e03`, `"8e03"`, false},
	} {
		if same := key(c.name, c.a) == key(c.name, c.b); same != c.same {
			t.Errorf("%s: %s and %s have the same key: %v", c.name, c.a, c.b, same)
		}
	}
}
