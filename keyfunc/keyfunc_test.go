package keyfunc_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func request(change func(*http.Request)) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "192.0.2.7:1234"
	if change != nil {
		change(r)
	}
	return r
}

// What expect wants of a request that has no key.
const (
	noKey     = "<no key>"
	ambiguous = "<ambiguous>"
	fault     = "<fault>" // any other error
)

// expect compares the outcome of a Func with a key or with one of the constants above.
func expect(t *testing.T, key keyfunc.Func, r *http.Request, want string) {
	t.Helper()
	got, err := key(r)
	if err != nil && got != "" {
		t.Errorf("got the key %q beside the error %v", got, err)
	}
	if outcome := outcomeOf(got, err); outcome != want {
		t.Errorf("got %s (%v), want %s", outcome, err, want)
	}
}

func outcomeOf(key string, err error) string {
	missing, open := errors.Is(err, keyfunc.ErrNoKey), errors.Is(err, keyfunc.ErrAmbiguous)
	switch {
	case err == nil:
		return key
	case missing && !open:
		return noKey
	case open && !missing:
		return ambiguous
	}
	return fault
}

// Every constructor finds the faults in its arguments, returns all of them and no Func.
func TestConstructorFaults(t *testing.T) {
	read := func(*http.Request) string { return "192.0.2.7" }
	believesAll := func(r *http.Request) string { return r.Header.Get("X-Real-Ip") }
	ip := keyfunc.RemoteIP()
	type result struct {
		f   keyfunc.Func
		err error
	}
	of := func(f keyfunc.Func, err error) result { return result{f, err} }
	for _, c := range []struct {
		name   string
		result result
		want   []string // one line of the error each
	}{
		{"Header, no name", of(keyfunc.Header("")), []string{`Header: ""`}},
		{"Header, colon", of(keyfunc.Header("X:Api")), []string{`Header: "X:Api"`}},
		{"Header, not ASCII", of(keyfunc.Header("Schlüssel")), []string{"Header: "}},
		{"Cookie, no name", of(keyfunc.Cookie("")), []string{`Cookie: ""`}},
		{"Query, no name", of(keyfunc.Query("")), []string{"Query: the name is empty"}},
		{"PathValue, no name", of(keyfunc.PathValue("")), []string{"PathValue: the name is empty"}},
		{"Static, no key", of(keyfunc.Static("")), []string{"Static: the key is empty"}},
		{"ContextValue, nil", of(keyfunc.ContextValue(nil)), []string{"ContextValue: the key is nil"}},
		{"ContextValue, slice", of(keyfunc.ContextValue([]int{1})), []string{"ContextValue: a key of type []int"}},
		{"Claim, nil", of(keyfunc.Claim(nil, "")), []string{"Claim: claims is nil", "Claim: the name is empty"}},
		{"Name, nil", of(keyfunc.Name(nil, nil)), []string{"Name: read is nil"}},
		{"Address, nil", of(keyfunc.Address(nil)), []string{"Address: the function is nil"}},
		{"Extractor, nil", of(keyfunc.Extractor(nil, "X Real")),
			[]string{"Extractor: the function is nil", `Extractor: "X Real"`}},
		{"Extractor, any peer", of(keyfunc.Extractor(believesAll)), []string{"Extractor: the function believes"}},
		{"TrustedProxies, none", of(keyfunc.TrustedProxies()), []string{"TrustedProxies: no CIDR"}},
		{"TrustedProxies, invalid", of(keyfunc.TrustedProxies("10.0.0.0/33", "10.0.0.0/8", "::ffff:0.0.0.0/90", "fe80::1%eth0")),
			[]string{`"10.0.0.0/33"`, `"::ffff:0.0.0.0/90"`, `"fe80::1%eth0"`}},
		{"Forwarded, invalid", of(keyfunc.Forwarded("nonsense")), []string{`Forwarded: "nonsense"`}},
		{"TrustedHops, zero", of(keyfunc.TrustedHops(0)), []string{"TrustedHops: n is 0"}},
		{"TrustedHops, too many", of(keyfunc.TrustedHops(51)), []string{"TrustedHops: n is 51"}},
		{"TrustedHeader, both", of(keyfunc.TrustedHeader("X Real", "nonsense")),
			[]string{`TrustedHeader: "X Real"`, `TrustedHeader: "nonsense"`}},
		{"HMAC, both", of(keyfunc.HMAC(make([]byte, 15), nil)), []string{"HMAC: the secret has 15", "HMAC: inner is nil"}},
		{"Join, two nil", of(keyfunc.Join(nil, ip, nil)), []string{"Join: Func 1 of 3", "Join: Func 3 of 3"}},
		{"Or, nil", of(keyfunc.Or(ip, nil)), []string{"Or: Func 2 of 2"}},
		{"Client, 47 bits", of(keyfunc.Client{IPv6Bits: 47}.Key()), []string{"Client: IPv6Bits is 47"}},
		{"Client, negative bits", of(keyfunc.Client{Read: read, IPv6Bits: -1}.Key()),
			[]string{"IPv6Bits is -1"}},
		{"Client, no CIDRs", of(keyfunc.Client{Proxies: []string{"x", "y"}, IPv6Bits: 1}.Key()),
			[]string{`Client: Proxies: "x"`, `Client: Proxies: "y"`, "IPv6Bits is 1"}},
		{"Client, no header", of(keyfunc.Client{Proxies: []string{"x"}, Header: "X Real"}.Key()),
			[]string{`Client: Proxies: "x"`, `Client: Header: "X Real"`}},
		{"Client, header without proxies", of(keyfunc.Client{Header: "Forwarded"}.Key()),
			[]string{"Client: Header needs Proxies"}},
		{"Client, header and hops", of(keyfunc.Client{Hops: 1, Header: "X-Real-Ip"}.Key()),
			[]string{"Client: Header needs Proxies"}},
		{"Client, hops", of(keyfunc.Client{Hops: -1}.Key()), []string{"Client: Hops is -1"}},
		{"Client, proxies and read", of(keyfunc.Client{Proxies: []string{"::1"}, Read: read}.Key()),
			[]string{"Client: Proxies, Hops and Read exclude"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.result.f != nil || c.result.err == nil {
				t.Fatalf("got a Func: %v, error %v", c.result.f != nil, c.result.err)
			}
			lines := strings.Split(c.result.err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("got %d faults, want %d: %v", len(lines), len(c.want), c.result.err)
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, "keyfunc: ") || !strings.Contains(line, c.want[i]) {
					t.Errorf("fault %d is %q, want %q in it", i, line, c.want[i])
				}
			}
		})
	}
}

func TestMustPanicsWithConstructorsError(t *testing.T) {
	expect(t, keyfunc.Must(keyfunc.Static("all")), request(nil), "all")
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "Static") {
			t.Errorf("Must panicked with %v, want the constructor's error", err)
		}
	}()
	keyfunc.Must(keyfunc.Static(""))
}

// row is a request, and the key or one of the constants above that a Func derives from it.
type row struct {
	name   string
	change func(*http.Request)
	want   string
}

func expectAll(t *testing.T, key keyfunc.Func, rows ...row) {
	t.Helper()
	for _, c := range rows {
		t.Run(c.name, func(t *testing.T) { expect(t, key, request(c.change), c.want) })
	}
}

// by is a request of a peer, with lines of a header.
func by(peer, header string, lines ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = peer
		r.Header[header] = lines
	}
}

// constant returns a Func with this outcome.
func constant(key string, err error) keyfunc.Func {
	return func(*http.Request) (string, error) { return key, err }
}

// joined returns the key that Join makes of these parts.
func joined(t interface{ Fatalf(string, ...any) }, parts []string) string {
	funcs := make([]keyfunc.Func, len(parts))
	for i, p := range parts {
		funcs[i] = constant(p, nil)
	}
	key, err := keyfunc.Must(keyfunc.Join(funcs[0], funcs[1:]...))(nil)
	if err != nil {
		t.Fatalf("Join: %v", err)
	}
	return key
}

func TestJoinAndOr(t *testing.T) {
	var (
		broken = errors.New("broken")
		a      = keyfunc.Must(keyfunc.Static("a"))
		ip     = keyfunc.RemoteIP()
		header = keyfunc.Must(keyfunc.Header("X-Api-Key"))
		empty  = constant("", nil)
		fails  = constant("", broken)
		both   = constant("", errors.Join(keyfunc.ErrNoKey, keyfunc.ErrAmbiguous))
		or     = func(first keyfunc.Func, others ...keyfunc.Func) keyfunc.Func {
			return keyfunc.Must(keyfunc.Or(first, others...))
		}
		join = func(first keyfunc.Func, others ...keyfunc.Func) keyfunc.Func {
			return keyfunc.Must(keyfunc.Join(first, others...))
		}
		hmac = func(inner keyfunc.Func) keyfunc.Func {
			return keyfunc.Must(keyfunc.HMAC([]byte("16 or more bytes"), inner))
		}
		hidden = hmac(header)
		twice  = []string{"abc", "z"}
	)
	for _, c := range []struct {
		name   string
		key    keyfunc.Func
		header []string // lines of X-Api-Key
		want   string
	}{
		{"Join", join(ip, a), nil, "9:192.0.2.71:a"},
		{"Join, empty first", join(empty, a), nil, noKey},
		{"Join, empty last", join(a, empty), nil, noKey},
		{"Join, missing", join(a, header), nil, noKey},
		{"Join, ambiguous", join(ip, header), twice, ambiguous},
		{"Join, failing", join(a, fails), nil, fault},
		{"HMAC, empty", hmac(empty), nil, noKey},
		{"HMAC, missing", hidden, nil, noKey},
		{"HMAC, ambiguous", hidden, twice, ambiguous},
		{"HMAC, failing", hmac(fails), nil, fault},
		{"Or, first", or(header, ip), []string{"k"}, "0:glTDKakoUPbVOd03b0gW7g"},
		{"Or, second", or(header, ip), nil, "1:192.0.2.7"},
		{"Or, empty", or(empty, ip), nil, "1:192.0.2.7"},
		{"Or, none", or(header, empty), nil, noKey},
		{"Or, failing", or(fails, ip), nil, fault},
		{"Or, none within Join", join(or(empty), keyfunc.Method()), nil, noKey},
		// A client must not choose the weaker key by making the stronger one ambiguous.
		{"Or, ambiguous", or(header, ip), twice, ambiguous},
		{"Or, ambiguous last", or(keyfunc.BearerToken(), header), twice, ambiguous},
		{"Or, ambiguous between", or(keyfunc.BearerToken(), header, ip), twice, ambiguous},
		{"Or, ambiguous within Or", or(or(header), ip), twice, ambiguous},
		{"Or, ambiguous within HMAC", or(hidden, ip), twice, ambiguous},
		{"Or, ambiguous and missing", or(both, ip), nil, fault},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, c.key, request(func(r *http.Request) { r.Header["X-Api-Key"] = c.header }), c.want)
		})
	}
	if _, err := join(a, fails)(request(nil)); !errors.Is(err, broken) {
		t.Errorf("Join: got %v, want the part's error", err)
	}
	if _, err := or(fails, ip)(request(nil)); !errors.Is(err, broken) {
		t.Errorf("Or: got %v, want the Func's error", err)
	}
}

func TestOrNumbersItsKeys(t *testing.T) {
	missing := constant("", keyfunc.ErrNoKey)
	first, _ := keyfunc.Must(keyfunc.Or(constant("1:a", nil), constant("a", nil)))(request(nil))
	second, _ := keyfunc.Must(keyfunc.Or(missing, constant("1:a", nil)))(request(nil))
	if first == second {
		t.Errorf("the same value under two Funcs is one key: %q", first)
	}
	// The number ends at its colon, so that Func 11 is not Func 1 with a key that begins with 1.
	many := slices.Repeat([]keyfunc.Func{missing}, 11)
	many[10] = constant("a", nil)
	expect(t, keyfunc.Must(keyfunc.Or(missing, many...)), request(nil), "11:a")
}

func TestJoinAndOrCopyTheirFuncs(t *testing.T) {
	funcs := []keyfunc.Func{constant("a", nil), constant("b", nil)}
	join := keyfunc.Must(keyfunc.Join(funcs[0], funcs[1:]...))
	or := keyfunc.Must(keyfunc.Or(constant("", nil), funcs...))
	funcs[0], funcs[1] = nil, nil
	expect(t, join, request(nil), "1:a1:b")
	expect(t, or, request(nil), "1:a")
}

func TestJoinIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.RuneFrom([]rune("a:1~{}")), 1, 4, -1)
		a := rapid.SliceOfN(part, 1, 4).Draw(t, "a")
		b := rapid.SliceOfN(part, 1, 4).Draw(t, "b")
		if (joined(t, a) == joined(t, b)) != slices.Equal(a, b) {
			t.Fatalf("%q and %q: %q and %q", a, b, joined(t, a), joined(t, b))
		}
	})
}

func FuzzJoin(f *testing.F) {
	f.Add("a\nb", "a\nb")
	f.Add("1:a\nb", "1\na:b")
	f.Add("0:", "0\n:")
	f.Add("1:a1:b", "a\nb")
	f.Add("a1\nb", "a\nb")
	f.Add("1\na1\nb", "a\nb")
	f.Add("a:b\nc", "a\nb:c")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
		if slices.Contains(x, "") || slices.Contains(y, "") {
			t.Skip("an empty part has no key")
		}
		if (joined(t, x) == joined(t, y)) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}

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
					if outcome := outcomeOf(key, err); outcome != row.client {
						t.Errorf("%s: got %s, want %s", row.name, outcome, row.client)
					}
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
		values, err := url.ParseQuery(raw)
		if err != nil || len(values["k"]) != 1 {
			t.Fatalf("%q has a key %q", raw, got)
		}
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
