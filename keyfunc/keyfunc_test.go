package keyfunc_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/gatetest"
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
	gatetest.Equal(t, outcomeOf(got, err), want, "got, with error %v", err)
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
	gatetest.Is(t, gatetest.Err(join(a, fails)(request(nil))), broken, "Join")
	gatetest.Is(t, gatetest.Err(or(fails, ip)(request(nil))), broken, "Or")
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
