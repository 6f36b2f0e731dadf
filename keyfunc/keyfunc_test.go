package keyfunc_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

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

func TestRemoteIP(t *testing.T) {
	for _, c := range []struct{ name, peer, want string }{
		{"address and port", "192.0.2.7:1234", "192.0.2.7"},
		{"bare address", "192.0.2.7", "192.0.2.7"},
		{"IPv6 and port", "[2001:db8:1:2:3::4]:1234", "2001:db8:1:2::/64"},
		{"bare IPv6", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"IPv6 in brackets", "[2001:db8:1:2:3::4]", "2001:db8:1:2::/64"},
		{"another address of the same /64", "[2001:db8:1:2:ffff::]:1", "2001:db8:1:2::/64"},
		{"zone", "[fe80::1%eth0]:1234", "fe80::/64"},
		{"mapped IPv4", "[::ffff:192.0.2.7]:1234", "192.0.2.7"},
		{"translated IPv4", "[64:ff9b::c000:207]:1234", "192.0.2.7"},
		{"translated elsewhere", "[64:ff9b:1::c000:207]:1234", "64:ff9b:1::/64"},
		{"Unix socket", "@", ""},
		{"empty", "", ""},
		{"no address", "example.com:80", ""},
		{"IPv4 in brackets", "[192.0.2.7]", ""},
		{"very long", strings.Repeat("1", 1<<20), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := keyfunc.RemoteIP()(request(func(r *http.Request) { r.RemoteAddr = c.peer }))
			if got != c.want || (c.want == "") != errors.Is(err, keyfunc.ErrNoKey) {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestTrustedProxies(t *testing.T) {
	trust, err := keyfunc.TrustedProxies("10.0.0.0/8", "::ffff:172.16.0.0/108", "203.0.113.9", "2001:db8:ffff::/48")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"direct client", "192.0.2.7:1", nil, "192.0.2.7"},
		{"untrusted peer is not believed", "192.0.2.7:1", []string{"198.51.100.1"}, "192.0.2.7"},
		{"one proxy", "10.0.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"forged leftmost", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.0.0.1:1", []string{"1.1.1.1, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"all lines count", "10.0.0.1:1", []string{"1.1.1.1", "198.51.100.1", "10.0.0.2"}, "198.51.100.1"},
		{"no header", "10.0.0.1:1", nil, "10.0.0.1"},
		{"empty header", "10.0.0.1:1", []string{""}, "10.0.0.1"},
		{"all trusted", "10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.1"},
		{"garbage reached", "10.0.0.1:1", []string{"198.51.100.1, unknown, 10.0.0.2"}, "10.0.0.1"},
		{"garbage not reached", "10.0.0.1:1", []string{"unknown, 198.51.100.1, 10.0.0.2"}, "198.51.100.1"},
		{"port", "10.0.0.1:1", []string{"198.51.100.1:443"}, "198.51.100.1"},
		{"brackets and port", "10.0.0.1:1", []string{"[2001:db8:5::1]:443"}, "2001:db8:5::/64"},
		{"brackets", "10.0.0.1:1", []string{"[2001:db8:5::1]"}, "2001:db8:5::/64"},
		{"bare IPv6", "10.0.0.1:1", []string{"2001:db8:5::1"}, "2001:db8:5::/64"},
		{"mapped hop does not escape the trust", "10.0.0.1:1", []string{"198.51.100.1, ::ffff:10.0.0.2"}, "198.51.100.1"},
		{"zoned hop does not escape the trust", "10.0.0.1:1", []string{"198.51.100.1, 2001:db8:ffff::2%eth0"}, "198.51.100.1"},
		{"mapped peer", "[::ffff:10.0.0.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"translated hop does not escape the trust", "10.0.0.1:1", []string{"198.51.100.1, 64:ff9b::10.0.0.2"}, "198.51.100.1"},
		{"mapped CIDR", "172.17.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"single address", "203.0.113.9:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"neighbour of the single address", "203.0.113.8:1", []string{"198.51.100.1"}, "203.0.113.8"},
		{"trusted IPv6 peer", "[2001:db8:ffff::1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"spaces and tabs", "10.0.0.1:1", []string{"1.1.1.1 ,\t198.51.100.1 , 10.0.0.2\t"}, "198.51.100.1"},
		{"50 hops", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(",10.0.0.2", 49)}, "198.51.100.1"},
		{"51 hops", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(",10.0.0.2", 50)}, "10.0.0.1"},
		{"long header before the client", "10.0.0.1:1", []string{strings.Repeat("1.1.1.1,", 1<<17) + "198.51.100.1"}, "198.51.100.1"},
		{"long hop", "10.0.0.1:1", []string{strings.Repeat("1", 1<<20)}, "10.0.0.1"},
		{"4 KiB of spaces", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(" ", 4096) + ",10.0.0.2"}, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := trust(request(func(r *http.Request) {
				r.RemoteAddr = c.peer
				r.Header["X-Forwarded-For"] = c.lines
			}))
			if err != nil || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	t.Run("no peer", func(t *testing.T) {
		_, err := trust(request(func(r *http.Request) {
			r.RemoteAddr = "@"
			r.Header.Set("X-Forwarded-For", "198.51.100.1")
		}))
		if !errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a long header costs no memory", func(t *testing.T) {
		r := request(func(r *http.Request) {
			r.RemoteAddr = "10.0.0.1:1"
			r.Header.Set("X-Forwarded-For", strings.Repeat(",10.0.0.2", 1<<17))
		})
		if n := testing.AllocsPerRun(10, func() { _, _ = trust(r) }); n > 4 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestTrustedProxiesFaults(t *testing.T) {
	if _, err := keyfunc.TrustedProxies(); err == nil {
		t.Error("no CIDR is no fault")
	}
	_, err := keyfunc.TrustedProxies("10.0.0.0/8", "10.0.0.0/33", "nonsense", "::ffff:0.0.0.0/90", "fe80::1%eth0")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"10.0.0.0/33", "nonsense", "::ffff:0.0.0.0/90", "fe80::1%eth0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named in %q", want, err)
		}
	}
	if strings.Contains(err.Error(), `"10.0.0.0/8"`) {
		t.Errorf("a good CIDR is named in %q", err)
	}
}

func TestHeader(t *testing.T) {
	key := keyfunc.Header("x-api-key")
	set := func(values ...string) *http.Request {
		return request(func(r *http.Request) { r.Header["X-Api-Key"] = values })
	}
	one, err := key(set("secret"))
	if err != nil || len(one) != 22 || strings.Contains(one, "secret") {
		t.Errorf("got %q, %v", one, err)
	}
	if same, _ := key(set("  secret\t")); same != one {
		t.Errorf("white space around it makes another key: %q", same)
	}
	if other, _ := key(set("Secret")); other == one {
		t.Error("another value has the same key")
	}
	if long, err := key(set(strings.Repeat("x", 1<<20))); err != nil || len(long) != 22 {
		t.Errorf("1 MiB: %d bytes, %v", len(long), err)
	}
	for name, values := range map[string][]string{"missing": nil, "empty": {""}, "blank": {" \t"}} {
		got, err := key(set(values...))
		refused(t, name, got, err, false)
	}
	for name, values := range map[string][]string{"two lines": {"a", "b"}, "one line twice": {"a", "a"}, "an empty line": {"", "a"}} {
		got, err := key(set(values...))
		refused(t, name, got, err, true)
	}
	for _, name := range []string{"", "X Api", "X:Api", "Schlüssel", "a\nb"} {
		if _, err := keyfunc.Header(name)(set("a")); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("name %q: got %v", name, err)
		}
	}
	host := keyfunc.Header("host")
	if got, err := host(request(func(r *http.Request) { r.Host = "example.com" })); err != nil || got == "" {
		t.Errorf("Host: got %q, %v", got, err)
	}
}

func TestRouteAndMethod(t *testing.T) {
	for pattern, want := range map[string]string{
		"":                         keyfunc.Unmatched,
		"/users/{id}":              "/users/{id}",
		"GET /users/{id}":          "/users/{id}",
		"GET example.com/a/{b...}": "/a/{b...}",
		"example.com/":             "/",
	} {
		if got, err := keyfunc.Route()(request(func(r *http.Request) { r.Pattern = pattern })); err != nil || got != want {
			t.Errorf("pattern %q: got %q, %v; want %q", pattern, got, err, want)
		}
	}
	for method, want := range map[string]string{"": "GET", "GET": "GET", "HEAD": "GET", "POST": "POST", "get": "OTHER", "FOO": "OTHER"} {
		if got, err := keyfunc.Method()(request(func(r *http.Request) { r.Method = method })); err != nil || got != want {
			t.Errorf("method %q: got %q, %v; want %q", method, got, err, want)
		}
	}
}

func TestStatic(t *testing.T) {
	if got, err := keyfunc.Static("all")(request(nil)); got != "all" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := keyfunc.Static("")(request(nil)); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("empty: got %v", err)
	}
}

func joined(t interface{ Fatalf(string, ...any) }, parts []string) string {
	funcs := make([]keyfunc.Func, len(parts))
	for i, p := range parts {
		funcs[i] = func(*http.Request) (string, error) { return p, nil }
	}
	s, err := keyfunc.Join(funcs...)(nil)
	if err != nil {
		t.Fatalf("Join: %v", err)
	}
	return s
}

func TestJoinIsInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.RuneFrom([]rune("a:1~{}")), 1, 4, -1)
		a := rapid.SliceOfN(part, 1, 4).Draw(t, "a")
		b := rapid.SliceOfN(part, 1, 4).Draw(t, "b")
		if same := strings.Join(a, "\x00") == strings.Join(b, "\x00"); (joined(t, a) == joined(t, b)) != same {
			t.Fatalf("%q and %q: %q and %q", a, b, joined(t, a), joined(t, b))
		}
	})
}

func TestJoinErrors(t *testing.T) {
	broken := errors.New("broken")
	fails := func(*http.Request) (string, error) { return "", broken }
	if _, err := keyfunc.Join(keyfunc.Static("a"), fails)(request(nil)); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	for name, f := range map[string]keyfunc.Func{
		"nothing": keyfunc.Join(), "nil part": keyfunc.Join(keyfunc.Static("a"), nil), "nil alternative": keyfunc.Or(nil),
	} {
		if _, err := f(request(nil)); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestOr(t *testing.T) {
	broken := errors.New("broken")
	fails := func(*http.Request) (string, error) { return "", broken }
	key := keyfunc.Or(keyfunc.Header("X-Api-Key"), keyfunc.RemoteIP())
	if got, err := key(request(nil)); got != "1:192.0.2.7" || err != nil {
		t.Errorf("fallback: got %q, %v", got, err)
	}
	with := request(func(r *http.Request) { r.Header.Set("X-Api-Key", "k") })
	if got, err := key(with); !strings.HasPrefix(got, "0:") || err != nil {
		t.Errorf("first: got %q, %v", got, err)
	}
	if _, err := keyfunc.Or(fails, keyfunc.RemoteIP())(request(nil)); !errors.Is(err, broken) {
		t.Errorf("an error that is not ErrNoKey is passed over: %v", err)
	}
	nobody := request(func(r *http.Request) { r.RemoteAddr = "@" })
	if _, err := key(nobody); !errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("none: got %v", err)
	}
}

// canonical fails unless key is how RemoteIP and TrustedProxies spell an address.
func canonical(t *testing.T, key string) netip.Addr {
	t.Helper()
	addr, err := netip.ParseAddr(key)
	if err != nil {
		prefix, err := netip.ParsePrefix(key)
		if err != nil || prefix.Bits() != 64 || prefix.Masked().String() != key {
			t.Fatalf("%q is not canonical", key)
		}
		return prefix.Addr()
	}
	if !addr.Is4() || addr.String() != key {
		t.Fatalf("%q is not canonical", key)
	}
	return addr
}

func FuzzRemoteIP(f *testing.F) {
	for _, s := range []string{"192.0.2.7:1", "[::1]:2", "fe80::1%eth0", "[::ffff:1.2.3.4]:5", "@", "[1.2.3.4]", "1.2.3.4:99999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := keyfunc.RemoteIP()(request(func(r *http.Request) { r.RemoteAddr = s }))
		if err != nil {
			if key != "" || !errors.Is(err, keyfunc.ErrNoKey) {
				t.Fatalf("got %q, %v", key, err)
			}
			return
		}
		canonical(t, key)
	})
}

func FuzzTrustedProxies(f *testing.F) {
	for _, s := range []string{
		"1.1.1.1, 198.51.100.1", "10.0.0.2\n198.51.100.1:80", "::ffff:10.0.0.2", "[2001:db8::1%x]:2", ",,", "10.0.0.2,unknown",
	} {
		f.Add("10.0.0.1:1", s)
		f.Add("192.0.2.1:1", s)
	}
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	six := netip.MustParsePrefix("2001:db8:1::/48")
	trust, err := keyfunc.TrustedProxies(trusted.String(), six.String())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, peer, header string) {
		r := request(func(r *http.Request) {
			r.RemoteAddr = peer
			r.Header["X-Forwarded-For"] = strings.Split(header, "\n")
		})
		key, err := trust(r)
		direct, directErr := keyfunc.RemoteIP()(r)
		if err != nil || directErr != nil {
			if (err == nil) != (directErr == nil) {
				t.Fatalf("%v, but the peer alone: %v", err, directErr)
			}
			return
		}
		addr := canonical(t, key)
		from := canonical(t, direct)
		believed := trusted.Contains(from) || six.Contains(from)
		if key != direct && !believed {
			t.Fatalf("an untrusted peer %s moved the key to %s", direct, key)
		}
		if key != direct && (trusted.Contains(addr) || six.Contains(addr)) {
			t.Fatalf("%s is a proxy", key)
		}
	})
}

func FuzzJoin(f *testing.F) {
	f.Add("a\nb", "a\nb")
	f.Add("1:a\nb", "1\na:b")
	f.Add("0:", "0\n:")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
		if slices.Contains(x, "") || slices.Contains(y, "") {
			t.Skip("an empty part is no key")
		}
		if (joined(t, x) == joined(t, y)) != (a == b) {
			t.Fatalf("%q and %q", a, b)
		}
	})
}
