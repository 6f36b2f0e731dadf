package keyfunc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

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
	claims := func(context.Context) map[string]any { return nil }
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
		{"Header, space", of(keyfunc.Header("X Api")), []string{`Header: "X Api"`}},
		{"Header, colon", of(keyfunc.Header("X:Api")), []string{`Header: "X:Api"`}},
		{"Header, not ASCII", of(keyfunc.Header("Schlüssel")), []string{"Header: "}},
		{"Header, line feed", of(keyfunc.Header("a\nb")), []string{`Header: "a\nb"`}},
		{"Cookie, no name", of(keyfunc.Cookie("")), []string{`Cookie: ""`}},
		{"Cookie, space", of(keyfunc.Cookie("a b")), []string{`Cookie: "a b"`}},
		{"Query, no name", of(keyfunc.Query("")), []string{"Query: the name is empty"}},
		{"PathValue, no name", of(keyfunc.PathValue("")), []string{"PathValue: the name is empty"}},
		{"Static, no key", of(keyfunc.Static("")), []string{"Static: the key is empty"}},
		{"ContextValue, nil", of(keyfunc.ContextValue(nil)), []string{"ContextValue: the key is nil"}},
		{"ContextValue, slice", of(keyfunc.ContextValue([]int{1})), []string{"ContextValue: a key of type []int"}},
		{"Claim, nil", of(keyfunc.Claim(nil, "")), []string{"Claim: claims is nil", "Claim: the name is empty"}},
		{"Claim, no name", of(keyfunc.Claim(claims, "")), []string{"Claim: the name is empty"}},
		{"Name, nil", of(keyfunc.Name(nil, nil)), []string{"Name: read is nil"}},
		{"Address, nil", of(keyfunc.Address(nil)), []string{"Address: the function is nil"}},
		{"Extractor, nil", of(keyfunc.Extractor(nil, "X Real")),
			[]string{"Extractor: the function is nil", `Extractor: "X Real"`}},
		{"Extractor, any peer", of(keyfunc.Extractor(believesAll)), []string{"Extractor: the function believes"}},
		{"TrustedProxies, none", of(keyfunc.TrustedProxies()), []string{"TrustedProxies: no CIDR"}},
		{"TrustedProxies, invalid", of(keyfunc.TrustedProxies("10.0.0.0/33", "10.0.0.0/8", "::ffff:0.0.0.0/90", "fe80::1%eth0")),
			[]string{`"10.0.0.0/33"`, `"::ffff:0.0.0.0/90"`, `"fe80::1%eth0"`}},
		{"Forwarded, none", of(keyfunc.Forwarded()), []string{"Forwarded: no CIDR"}},
		{"Forwarded, invalid", of(keyfunc.Forwarded("nonsense")), []string{`Forwarded: "nonsense"`}},
		{"TrustedHops, negative", of(keyfunc.TrustedHops(-1)), []string{"TrustedHops: n is -1"}},
		{"TrustedHops, zero", of(keyfunc.TrustedHops(0)), []string{"TrustedHops: n is 0"}},
		{"TrustedHops, too many", of(keyfunc.TrustedHops(51)), []string{"TrustedHops: n is 51"}},
		{"TrustedHeader, no peers", of(keyfunc.TrustedHeader("X-Real-Ip")), []string{"TrustedHeader: no CIDR"}},
		{"TrustedHeader, both", of(keyfunc.TrustedHeader("X Real", "nonsense")),
			[]string{`TrustedHeader: "X Real"`, `TrustedHeader: "nonsense"`}},
		{"HMAC, both", of(keyfunc.HMAC(make([]byte, 15), nil)), []string{"HMAC: the secret has 15", "HMAC: inner is nil"}},
		{"Join, nil", of(keyfunc.Join(nil)), []string{"Join: Func 1 of 1"}},
		{"Join, two nil", of(keyfunc.Join(nil, ip, nil)), []string{"Join: Func 1 of 3", "Join: Func 3 of 3"}},
		{"Or, nil", of(keyfunc.Or(ip, nil)), []string{"Or: Func 2 of 2"}},
		{"Client, 47 bits", of(keyfunc.Client{IPv6Bits: 47}.Key()), []string{"Client: IPv6Bits is 47"}},
		{"Client, 129 bits", of(keyfunc.Client{IPv6Bits: 129}.Key()), []string{"IPv6Bits is 129"}},
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
		{"Client, proxies and hops", of(keyfunc.Client{Proxies: []string{"::1"}, Hops: 1}.Key()),
			[]string{"Client: Proxies, Hops and Read exclude"}},
		{"Client, proxies and read", of(keyfunc.Client{Proxies: []string{"::1"}, Read: read}.Key()),
			[]string{"Client: Proxies, Hops and Read exclude"}},
		{"Client, hops and read", of(keyfunc.Client{Hops: 1, Read: read}.Key()),
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
