package keyfunc_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

type contextKey struct{}

type userID string

func TestContextValueAndClaim(t *testing.T) {
	longest := strings.Repeat("x", keyfunc.MaxLen)
	for _, c := range []struct {
		name  string
		value any
		want  string
	}{
		{"string", "acme", "acme"},
		{"string type", userID("u1"), "u1"},
		{"integer", 42, "42"},
		{"negative integer", int64(-42), "-42"},
		{"unsigned integer", uint64(1 << 63), "9223372036854775808"},
		{"Stringer", netip.MustParseAddr("192.0.2.1"), "192.0.2.1"},
		{"pointer to a Stringer", new(netip.Addr), "invalid IP"},
		{"nil pointer to a Stringer", (*netip.Addr)(nil), noKey},
		{"whole float64", 1e15, "1000000000000000"},
		{"json.Number", json.Number("12345678901234567890"), "12345678901234567890"},
		{"fraction", 1.5, fault},
		{"float64 beyond 2^53", 1e300, fault},
		{"json.Number with an exponent", json.Number("1e3"), fault},
		{"bool", true, fault},
		{"slice", []string{"a"}, fault},
		{"map", map[string]any{}, fault},
		{"nil", nil, noKey},
		{"empty", "", noKey},
		{"longest", longest, longest},
		{"too long", longest + "x", ambiguous},
		{"1 MiB", strings.Repeat("x", 1<<20), ambiguous},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(nil)
			r = r.WithContext(context.WithValue(r.Context(), contextKey{}, c.value))
			expect(t, keyfunc.Must(keyfunc.ContextValue(contextKey{})), r, c.want)
			claims := func(ctx context.Context) map[string]any {
				return map[string]any{"sub": ctx.Value(contextKey{})}
			}
			expect(t, keyfunc.Must(keyfunc.Claim(claims, "sub")), r, c.want)
			expect(t, keyfunc.Must(keyfunc.Claim(claims, "other")), r, noKey)
		})
	}
}

func TestUnauthenticatedRequestHasNoIdentity(t *testing.T) {
	none := func(context.Context) map[string]any { return nil }
	expect(t, keyfunc.Must(keyfunc.ContextValue(contextKey{})), request(nil), noKey)
	expect(t, keyfunc.Must(keyfunc.Claim(none, "sub")), request(nil), noKey)
}

func TestPathValue(t *testing.T) {
	longest := strings.Repeat("x", keyfunc.MaxLen)
	is := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.SetPathValue("tenant", value) }
	}
	expectAll(t, keyfunc.Must(keyfunc.PathValue("tenant")),
		row{"segment", is("acme"), "acme"},
		row{"slash", is("a/b"), "a/b"},
		row{"empty", is(""), noKey},
		row{"longest", is(longest), longest},
		row{"too long", is(longest + "x"), ambiguous},
		row{"missing", nil, noKey},
	)
}

func TestRoute(t *testing.T) {
	of := func(pattern string) func(*http.Request) { return func(r *http.Request) { r.Pattern = pattern } }
	expectAll(t, keyfunc.Route(),
		row{"none", of(""), keyfunc.Unmatched},
		row{"path", of("/users/{id}"), "/users/{id}"},
		row{"method and path", of("GET /users/{id}"), "/users/{id}"},
		row{"method, host and path", of("GET example.com/a/{b...}"), "/a/{b...}"},
		row{"host", of("example.com/"), "/"},
	)
}

func TestMethod(t *testing.T) {
	by := func(method string) func(*http.Request) { return func(r *http.Request) { r.Method = method } }
	expectAll(t, keyfunc.Method(),
		row{"empty", by(""), "GET"},
		row{"GET", by("GET"), "GET"},
		row{"HEAD", by("HEAD"), "GET"},
		row{"POST", by("POST"), "POST"},
		row{"QUERY", by("QUERY"), "QUERY"},
		row{"lower case", by("get"), "OTHER"},
		row{"made up", by("FOO"), "OTHER"},
	)
}
