package keyfunc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
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
		{"nil", nil, noKey},
		{"empty", "", noKey},
		{"longest", longest, longest},
		{"too long", longest + "x", ambiguous},
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

// Rows with the same client must have the same key, and rows with different clients different ones.
func TestCredentials(t *testing.T) {
	authorization := func(lines ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Authorization"] = lines }
	}
	cookie := func(lines ...string) func(*http.Request) {
		return func(r *http.Request) { r.Header["Cookie"] = lines }
	}
	query := func(raw string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = raw }
	}
	login := func(r *http.Request) string { return r.URL.Query().Get("login") }
	compose := func(s string) string { return strings.Replace(s, "e\u0301", "\u00e9", 1) }
	type row struct {
		name   string
		change func(*http.Request)
		client string // or noKey, or ambiguous
	}
	for _, c := range []struct {
		name string
		key  keyfunc.Func
		rows []row
	}{
		{"bearer token", keyfunc.BearerToken(), []row{
			{"token", authorization("Bearer abc.DEF-_~+/=="), "ann"},
			{"lower case", authorization("bearer abc.DEF-_~+/=="), "ann"},
			{"spaces", authorization("BEARER   abc.DEF-_~+/== "), "ann"},
			{"another token", authorization("Bearer abc.def-_~+/=="), "bob"},
			{"1 MiB", authorization("Bearer " + strings.Repeat("a", 1<<20)), "cat"},
			{"missing", authorization(), noKey},
			{"another scheme", authorization("Basic abc"), noKey},
			{"scheme with a suffix", authorization("Bearerx abc"), noKey},
			{"scheme and a space", authorization("Bearer "), noKey},
			{"padding alone", authorization("Bearer =="), ambiguous},
			{"two tokens", authorization("Bearer abc def"), ambiguous},
			{"padding inside", authorization("Bearer a=b"), ambiguous},
			{"colon inside", authorization("Bearer sk:abc"), ambiguous},
			{"tab", authorization("Bearer\tabc"), ambiguous},
			{"two lines", authorization("Bearer abc", "Bearer abc"), ambiguous},
			{"two schemes", authorization("Basic abc", "Bearer abc"), ambiguous},
		}},
		{"cookie", keyfunc.Must(keyfunc.Cookie("sid")), []row{
			{"cookie", cookie("a=1; sid=v1; b=2"), "ann"},
			{"quoted", cookie(`sid="v1"`), "ann"},
			{"another value", cookie("sid=v2"), "bob"},
			{"longer name", cookie("xsid=v1"), noKey},
			{"empty", cookie("sid="), noKey},
			{"missing", cookie(), noKey},
			{"blank", cookie(`sid=" "`), ambiguous},
			{"twice", cookie("sid=v1; sid=v1"), ambiguous},
			{"in two lines", cookie("sid=v1", "sid=v2"), ambiguous},
		}},
		{"query", keyfunc.Must(keyfunc.Query("api_key")), []row{
			{"parameter", query("a=1&api_key=v1"), "ann"},
			{"escaped", query("api%5Fkey=%76%31"), "ann"},
			{"another value", query("api_key=v2"), "bob"},
			{"empty", query("api_key="), noKey},
			{"no value", query("api_key"), noKey},
			{"missing", query(""), noKey},
			{"blank", query("api_key=+%09"), ambiguous},
			{"twice", query("api_key=v1&api_key=v1"), ambiguous},
			{"empty and not", query("api_key=&api_key=v1"), ambiguous},
			{"malformed", query("api_key=v1&%zz"), ambiguous},
			{"malformed, no parameter", query("other=%zz"), ambiguous},
			{"semicolon", query("a=1;api_key=v1"), ambiguous},
		}},
		{"name", keyfunc.Must(keyfunc.Name(login, nil)), []row{
			{"name", query("login=bob"), "bob"},
			{"case and white space", query("login=+%42ob%09"), "bob"},
			{"another name", query("login=alice"), "alice"},
			{"blank", query("login=+"), noKey},
			{"missing", query(""), noKey},
		}},
		{"name with normalize", keyfunc.Must(keyfunc.Name(login, compose)), []row{
			{"composed", query("login=Andr" + url.QueryEscape("\u00e9")), "Andr\u00e9"},
			{"decomposed", query("login=Andr" + url.QueryEscape("e\u0301")), "Andr\u00e9"},
			{"case is kept", query("login=andr" + url.QueryEscape("\u00e9")), "andr\u00e9"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			clients, keys := make(map[string]string), make(map[string]string)
			for _, row := range c.rows {
				key, err := c.key(request(row.change))
				if row.client == noKey || row.client == ambiguous {
					gatetest.Equal(t, outcomeOf(key, err), row.client, "%s: got", row.name)
					continue
				}
				if err != nil || len(key) != 22 {
					t.Errorf("%s: got %q, %v; want a hash", row.name, key, err)
				}
				if client, ok := clients[key]; ok && client != row.client {
					t.Errorf("%s: %s has the key of %s", row.name, row.client, client)
				}
				if other, ok := keys[row.client]; ok && other != key {
					t.Errorf("%s: %s has a second key", row.name, row.client)
				}
				clients[key], keys[row.client] = row.client, key
			}
		})
	}
}

// lenient reports whether a reader that splits at white space finds a bearer token. net/http admits
// no control character but the tab.
func lenient(s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) {
		return false
	}
	fields := strings.Fields(s)
	return len(fields) > 1 && strings.EqualFold(fields[0], "bearer")
}

func FuzzBearerToken(f *testing.F) {
	for _, s := range []string{"Bearer a", "bearer  b==", "Basic x", "Bearer", "Bearer =", "BEARER a b", ""} {
		f.Add(s)
	}
	key := keyfunc.BearerToken()
	f.Fuzz(func(t *testing.T, s string) {
		with := func(value string) (string, error) {
			return key(request(func(r *http.Request) { r.Header["Authorization"] = []string{value} }))
		}
		got, err := with(s)
		if err != nil {
			missing := errors.Is(err, keyfunc.ErrNoKey)
			if got != "" || missing == errors.Is(err, keyfunc.ErrAmbiguous) {
				t.Fatalf("got %q, %v", got, err)
			}
			if missing && lenient(s) {
				t.Fatalf("%q has no key, but a lenient reader finds a token", s)
			}
			return
		}
		fields := strings.Fields(s)
		if len(fields) != 2 || !strings.EqualFold(fields[0], "bearer") {
			t.Fatalf("%q has a token", s)
		}
		if same, err := with("Bearer " + fields[1]); same != got || err != nil {
			t.Fatalf("%q and its canonical form: %q and %q", s, got, same)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"k=v", "%6b=v", "k=v&k=w", "k", "k=%zz", ";k=v", "a=b&k=%20"} {
		f.Add(s)
	}
	key := keyfunc.Must(keyfunc.Query("k"))
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := key(request(func(r *http.Request) { r.URL.RawQuery = raw }))
		if err != nil {
			// Never exempt a request in whose query a handler finds the parameter.
			read := (&url.URL{RawQuery: raw}).Query().Get("k") != ""
			missing := errors.Is(err, keyfunc.ErrNoKey)
			if got != "" || missing == errors.Is(err, keyfunc.ErrAmbiguous) || missing && read {
				t.Fatalf("got %q, %v", got, err)
			}
			return
		}
		values := gatetest.Must(url.ParseQuery(raw))(t)
		gatetest.Need(t, len(values["k"]), 1, "%q has a key %q", raw, got)
	})
}

func FuzzCookie(f *testing.F) {
	for _, s := range []string{"sid=v", `sid="v"`, "sid=v; sid=w", "a=b;sid=", "sid=v\nsid=w", "; ;=", "sid=a\x00b"} {
		f.Add(s)
	}
	key := keyfunc.Must(keyfunc.Cookie("sid"))
	f.Fuzz(func(t *testing.T, lines string) {
		r := request(func(r *http.Request) { r.Header["Cookie"] = strings.Split(lines, "\n") })
		got, err := key(r)
		if err != nil {
			cookie, _ := r.Cookie("sid")
			read := cookie != nil && cookie.Value != ""
			missing := errors.Is(err, keyfunc.ErrNoKey)
			if got != "" || missing == errors.Is(err, keyfunc.ErrAmbiguous) || missing && read {
				t.Fatalf("got %q, %v", got, err)
			}
			return
		}
		if _, err := r.Cookie("sid"); err != nil || len(got) != 22 {
			t.Fatalf("%q: %q, but %v", lines, got, err)
		}
	})
}

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
	gatetest.Equal(t, len(gatetest.Must(key(with(strings.Repeat("x", 1<<20))))(t)), 22, "1 MiB")
}

func TestHeaderReadsHostFromRequest(t *testing.T) {
	host := keyfunc.Must(keyfunc.Header("host"))
	got := gatetest.Must(host(request(func(r *http.Request) { r.Host = "example.com" })))(t)
	gatetest.Equal(t, len(got), 22, "got")
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
		same := key(c.name, c.a) == key(c.name, c.b)
		gatetest.Equal(t, same, c.same, "%s: %s and %s have the same key", c.name, c.a, c.b)
	}
}
