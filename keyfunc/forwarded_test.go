package keyfunc_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func TestForwarded(t *testing.T) {
	key := keyfunc.Must(keyfunc.Forwarded("10.0.0.0/8", "2001:db8:ffff::/48"))
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
		{"mapped proxy", []string{`for=198.51.100.1, for="[::ffff:10.0.0.2]"`}, "198.51.100.1"},
		{"zoned proxy", []string{`for=198.51.100.1, for="[2001:db8:ffff::2%25eth0]"`}, "198.51.100.1"},
		{"open quote", []string{`for="6.6.6.6, for=198.51.100.1`}, "198.51.100.1"},
		{"open quote in another line", []string{`for="6.6.6.6`, `for=198.51.100.1`}, "198.51.100.1"},
		{"open quote and a backslash", []string{`for="6.6.6.6\, for=198.51.100.1`}, "198.51.100.1"},
		{"quoted for", []string{`for=198.51.100.1;host="x, for=6.6.6.6"`}, "198.51.100.1"},
		{"quoted for after an escaped quote", []string{`for=198.51.100.1;host="x\", for=6.6.6.6"`}, "198.51.100.1"},
		{"escaped backslash ends the quotes", []string{`for=6.6.6.6;host="x\\", for=198.51.100.1`}, "198.51.100.1"},
		{"unknown", []string{"for=6.6.6.6, for=unknown"}, peer},
		{"obfuscated", []string{"for=6.6.6.6, for=_hidden"}, peer},
		{"obfuscated port", []string{`for=6.6.6.6, for="198.51.100.1:_x"`}, peer},
		{"no for", []string{"for=6.6.6.6, proto=https"}, peer},
		{"two for", []string{"for=198.51.100.1;for=6.6.6.6"}, peer},
		{"empty", []string{"for="}, peer},
		{"no value", []string{"for"}, peer},
		{"address alone", []string{"6.6.6.6"}, peer},
		{"text after the quotes", []string{`for="6.6.6.6"x`}, peer},
		{"list of addresses", []string{"6.6.6.6, 198.51.100.1"}, peer},
		{"all trusted", []string{"for=10.0.0.3, for=10.0.0.2"}, peer},
		{"no header", nil, peer},
		{"50 hops", []string{"for=198.51.100.1" + strings.Repeat(",for=10.0.0.2", 49)}, "198.51.100.1"},
		{"51 hops", []string{"for=198.51.100.1" + strings.Repeat(",for=10.0.0.2", 50)}, peer},
		{"1 MiB to the left", []string{strings.Repeat("for=6.6.6.6,", 1<<16) + "for=198.51.100.1"}, "198.51.100.1"},
		{"1 MiB in quotes", []string{`for=198.51.100.1;host="` + strings.Repeat("x", 1<<20) + `"`}, peer},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := func(addr string) *http.Request {
				return request(func(r *http.Request) {
					r.RemoteAddr = addr + ":1"
					r.Header["Forwarded"] = c.lines
					r.Header.Set("X-Forwarded-For", "6.6.6.6")
				})
			}
			expect(t, key, from(peer), c.want)
			expect(t, key, from("192.0.2.7"), "192.0.2.7") // an untrusted peer
		})
	}
}

// node spells an address as a proxy does in Forwarded.
func node(addr netip.Addr) string {
	if addr.Is6() {
		return `for="[` + addr.String() + `]:443"`
	}
	return "for=" + addr.String()
}

// Whatever a client writes, the key is the address that the nearest proxy appends.
func FuzzAppendedAddress(f *testing.F) {
	f.Add(`for="`, []byte{198, 51, 100, 7}, true)
	f.Add(`for=6.6.6.6;host="\`, []byte{32, 1, 13, 184, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, false)
	f.Add("1.1.1.1", []byte{1, 2, 3, 4}, true)
	proxies := netip.MustParsePrefix("10.0.0.0/8")
	keys := map[string]keyfunc.Func{
		"Forwarded":      keyfunc.Must(keyfunc.Forwarded(proxies.String())),
		"TrustedProxies": keyfunc.Must(keyfunc.TrustedProxies(proxies.String())),
		"TrustedHops":    keyfunc.Must(keyfunc.TrustedHops(1)),
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
		want := core.Must(keyfunc.RemoteIP()(request(func(r *http.Request) { r.RemoteAddr = addr.String() })))
		for name, key := range keys {
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
	key := keyfunc.Must(keyfunc.Forwarded(trusted.String()))
	f.Fuzz(func(t *testing.T, peer, header string) {
		r := request(func(r *http.Request) {
			r.RemoteAddr = peer
			r.Header["Forwarded"] = strings.Split(header, "\n")
		})
		onlyProxiesChangeTheKey(t, r, key, trusted)
	})
}

// besidePeer returns the keys of a request by key and by RemoteIP. The first is canonical, and
// neither fails alone.
func besidePeer(t *testing.T, r *http.Request, key keyfunc.Func) (got, direct string, ok bool) {
	t.Helper()
	got, err := key(r)
	direct, directErr := keyfunc.RemoteIP()(r)
	if (err == nil) != (directErr == nil) {
		t.Fatalf("%v, but RemoteIP: %v", err, directErr)
	}
	if err != nil {
		return "", "", false
	}
	canonical(t, got)
	return got, direct, true
}

// onlyProxiesChangeTheKey fails if the key is a proxy's, or is not the peer's although the peer is
// no proxy.
func onlyProxiesChangeTheKey(t *testing.T, r *http.Request, key keyfunc.Func, proxies ...netip.Prefix) {
	t.Helper()
	got, direct, ok := besidePeer(t, r, key)
	if !ok || got == direct {
		return
	}
	trusted := func(addr netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	if !trusted(canonical(t, direct)) {
		t.Fatalf("untrusted peer %s changed its key to %s", direct, got)
	}
	if trusted(canonical(t, got)) {
		t.Fatalf("the key %s is a proxy's", got)
	}
}
