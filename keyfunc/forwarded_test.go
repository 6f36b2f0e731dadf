package keyfunc_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestForwarded(t *testing.T) {
	trust, err := keyfunc.Forwarded("10.0.0.0/8", "2001:db8:ffff::/48")
	if err != nil {
		t.Fatal(err)
	}
	const peer = "10.0.0.1"
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"token", []string{"for=198.51.100.1"}, "198.51.100.1"},
		{"any case", []string{"For=198.51.100.1;Proto=https"}, "198.51.100.1"},
		{"other parameters first", []string{`by=203.0.113.43;host="a;b,c";for=198.51.100.1`}, "198.51.100.1"},
		{"quoted", []string{`for="198.51.100.1"`}, "198.51.100.1"},
		{"quoted with port", []string{`for="198.51.100.1:4711"`}, "198.51.100.1"},
		{"port without quotes", []string{`for=198.51.100.1:4711`}, "198.51.100.1"},
		{"IPv6", []string{`for="[2001:db8:cafe::17]"`}, "2001:db8:cafe::/64"},
		{"IPv6 with port", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{"escaped characters", []string{`for="198.51\.100.\1"`}, "198.51.100.1"},
		{"empty pairs", []string{`;for=198.51.100.1;;proto=http;`}, "198.51.100.1"},
		{"white space", []string{"for=203.0.113.6 ,\tfor=198.51.100.1 ; proto=http , for=10.0.0.2 "}, "198.51.100.1"},
		{"forged leftmost", []string{"for=6.6.6.6, for=198.51.100.1, for=10.0.0.2"}, "198.51.100.1"},
		{"all lines count", []string{"for=6.6.6.6", "for=198.51.100.1", "for=10.0.0.2"}, "198.51.100.1"},
		{"mapped hop does not escape the trust", []string{`for=198.51.100.1, for="[::ffff:10.0.0.2]"`}, "198.51.100.1"},
		{"zoned hop does not escape the trust", []string{`for=198.51.100.1, for="[2001:db8:ffff::2%25eth0]"`}, "198.51.100.1"},
		{"a quote left open swallows nothing", []string{`for="6.6.6.6, for=198.51.100.1`}, "198.51.100.1"},
		{"nor over lines", []string{`for="6.6.6.6`, `for=198.51.100.1`}, "198.51.100.1"},
		{"nor with a backslash", []string{`for="6.6.6.6\, for=198.51.100.1`}, "198.51.100.1"},
		{"a quoted for is no element", []string{`for=198.51.100.1;host="x, for=6.6.6.6"`}, "198.51.100.1"},
		{"nor behind an escaped quote", []string{`for=198.51.100.1;host="x\", for=6.6.6.6"`}, "198.51.100.1"},
		{"nor behind an escaped backslash", []string{`for=6.6.6.6;host="x\\", for=198.51.100.1`}, "198.51.100.1"},
		{"unknown", []string{"for=6.6.6.6, for=unknown"}, peer},
		{"obfuscated", []string{"for=6.6.6.6, for=_hidden"}, peer},
		{"obfuscated port", []string{`for=6.6.6.6, for="198.51.100.1:_x"`}, peer},
		{"no for", []string{"for=6.6.6.6, proto=https"}, peer},
		{"two of them", []string{"for=198.51.100.1;for=6.6.6.6"}, peer},
		{"empty", []string{"for="}, peer},
		{"no value", []string{"for"}, peer},
		{"an address alone", []string{"6.6.6.6"}, peer},
		{"text behind the quotes", []string{`for="6.6.6.6"x`}, peer},
		{"X-Forwarded-For's form", []string{"6.6.6.6, 198.51.100.1"}, peer},
		{"all trusted", []string{"for=10.0.0.3, for=10.0.0.2"}, peer},
		{"no header", nil, peer},
		{"50 hops", []string{"for=198.51.100.1" + strings.Repeat(",for=10.0.0.2", 49)}, "198.51.100.1"},
		{"51 hops", []string{"for=198.51.100.1" + strings.Repeat(",for=10.0.0.2", 50)}, peer},
		{"1 MiB before", []string{strings.Repeat("for=6.6.6.6,", 1<<16) + "for=198.51.100.1"}, "198.51.100.1"},
		{"1 MiB in quotes", []string{`for=198.51.100.1;host="` + strings.Repeat("x", 1<<20) + `"`}, peer},
	} {
		t.Run(c.name, func(t *testing.T) {
			ask := func(from string) string {
				got, err := trust(request(func(r *http.Request) {
					r.RemoteAddr = from
					r.Header["Forwarded"] = c.lines
					r.Header.Set("X-Forwarded-For", "6.6.6.6")
				}))
				if err != nil {
					t.Fatal(err)
				}
				return got
			}
			if got := ask(peer + ":1"); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := ask("192.0.2.7:1"); got != "192.0.2.7" {
				t.Errorf("an untrusted peer moved his key to %q", got)
			}
		})
	}
}

// node is how a proxy writes an address into Forwarded.
func node(addr netip.Addr) string {
	if addr.Is6() {
		return `for="[` + addr.String() + `]:443"`
	}
	return "for=" + addr.String()
}

// Whatever a client writes, the address that the nearest proxy appends is the key.
func FuzzWhatTheProxyAppends(f *testing.F) {
	f.Add(`for="`, []byte{198, 51, 100, 7}, true)
	f.Add(`for=6.6.6.6;host="\`, []byte{32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, false)
	f.Add("1.1.1.1", []byte{1, 2, 3, 4}, true)
	proxies := netip.MustParsePrefix("10.0.0.0/8")
	byForwarded, err := keyfunc.Forwarded(proxies.String())
	if err != nil {
		f.Fatal(err)
	}
	byXFF, err := keyfunc.TrustedProxies(proxies.String())
	if err != nil {
		f.Fatal(err)
	}
	byHops, err := keyfunc.TrustedHops(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, before string, address []byte, newLine bool) {
		addr, ok := netip.AddrFromSlice(address)
		if !ok || proxies.Contains(addr.Unmap()) {
			t.Skip()
		}
		lines := func(added string) []string {
			if newLine {
				return []string{before, added}
			}
			return []string{before + ", " + added}
		}
		r := request(func(r *http.Request) {
			r.RemoteAddr = "10.0.0.1:1"
			r.Header["Forwarded"] = lines(node(addr))
			r.Header["X-Forwarded-For"] = lines(addr.String())
		})
		want, err := keyfunc.RemoteIP()(request(func(r *http.Request) { r.RemoteAddr = addr.String() }))
		if err != nil {
			t.Fatal(err)
		}
		for name, key := range map[string]keyfunc.Func{"Forwarded": byForwarded, "TrustedProxies": byXFF, "TrustedHops": byHops} {
			if got, err := key(r); got != want || err != nil {
				t.Errorf("%s: got %q, %v; want %q", name, got, err, want)
			}
		}
	})
}

func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		`for=192.0.2.60;proto=http;by=203.0.113.43`, `for="[2001:db8:cafe::17]:4711"`, "for=unknown, for=_x", `for="1.2.3.4\"`,
		`for="[::ffff:10.0.0.2]", for="10.0.0.9"`, `host="a, for=1.1.1.1";for=2.2.2.2`, "for=1.1.1.1\nfor=10.0.0.1", `for="\1.1.1.1"`, ";;=;",
	} {
		f.Add("10.0.0.1:1", s)
		f.Add("192.0.2.1:1", s)
	}
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	trust, err := keyfunc.Forwarded(trusted.String())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, peer, header string) {
		r := request(func(r *http.Request) {
			r.RemoteAddr = peer
			r.Header["Forwarded"] = strings.Split(header, "\n")
		})
		believed(t, r, trust, trusted)
	})
}

// believed fails if the key is a proxy's, not canonical, or another than its peer's for a peer that is no proxy.
func believed(t *testing.T, r *http.Request, key keyfunc.Func, trusted netip.Prefix) {
	t.Helper()
	got, err := key(r)
	direct, directErr := keyfunc.RemoteIP()(r)
	if err != nil || directErr != nil {
		if (err == nil) != (directErr == nil) {
			t.Fatalf("%v, but the peer alone: %v", err, directErr)
		}
		return
	}
	addr := canonical(t, got)
	if got == direct {
		return
	}
	if !trusted.Contains(canonical(t, direct)) {
		t.Fatalf("an untrusted peer %s moved the key to %s", direct, got)
	}
	if trusted.Contains(addr) {
		t.Fatalf("%s is a proxy", got)
	}
}
