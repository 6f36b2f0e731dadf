package keyfunc_test

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func TestRemoteIP(t *testing.T) {
	from := func(peer string) func(*http.Request) { return by(peer, "X-Forwarded-For") }
	expectAll(t, keyfunc.RemoteIP(),
		row{"address and port", from("192.0.2.7:1234"), "192.0.2.7"},
		row{"bare address", from("192.0.2.7"), "192.0.2.7"},
		row{"IPv6 and port", from("[2001:db8:1:2:3::4]:1234"), "2001:db8:1:2::/64"},
		row{"bare IPv6", from("2001:db8:1:2:3::4"), "2001:db8:1:2::/64"},
		row{"IPv6 in brackets", from("[2001:db8:1:2:3::4]"), "2001:db8:1:2::/64"},
		row{"another address of the same /64", from("[2001:db8:1:2:ffff::]:1"), "2001:db8:1:2::/64"},
		row{"last address of the /64", from("[2001:db8:1:2:ffff:ffff:ffff:ffff]:2"), "2001:db8:1:2::/64"},
		row{"next /64", from("[2001:db8:1:3::1]:1"), "2001:db8:1:3::/64"},
		row{"zone", from("[fe80::1%eth0]:1234"), "fe80::/64"},
		row{"mapped IPv4", from("[::ffff:192.0.2.7]:1234"), "192.0.2.7"},
		row{"translated IPv4", from("[64:ff9b::c000:207]:1234"), "192.0.2.7"},
		row{"another translation prefix", from("[64:ff9b:1::c000:207]:1234"), "64:ff9b:1::/64"},
		row{"Unix socket", from("@"), noKey},
		row{"empty", from(""), noKey},
		row{"host name", from("example.com:80"), noKey},
		row{"IPv4 in brackets", from("[192.0.2.7]"), noKey},
		row{"1 MiB", from(strings.Repeat("1", 1<<20)), noKey},
	)
}

func TestRemoteIPAllocations(t *testing.T) {
	key := keyfunc.RemoteIP()
	r := request(func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1234" })
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

// canonical returns the address in a key. It fails unless the key is the address's one spelling.
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
			if outcomeOf(key, err) != noKey || key != "" {
				t.Fatalf("got %q, %v", key, err)
			}
			return
		}
		canonical(t, key)
	})
}

func TestAddress(t *testing.T) {
	for _, c := range []struct{ name, address, want string }{
		{"IPv4", "198.51.100.1", "198.51.100.1"},
		{"mapped IPv4", "::ffff:198.51.100.1", "198.51.100.1"},
		{"IPv6", "2001:db8:0:0::1", "2001:db8::/64"},
		{"zone", "fe80::1%eth0", "fe80::/64"},
		{"empty", "", noKey},
		{"word", "unknown", noKey},
		{"not ASCII", "not an ip ☃", noKey},
		{"1 MiB", strings.Repeat("1", 1<<20), noKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := func(*http.Request) string { return c.address }
			expect(t, keyfunc.Must(keyfunc.Address(read)), request(nil), c.want)
		})
	}
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"192.0.2.7", "[::1]:2", "fe80::1%eth0", "64:ff9b::1.2.3.4", "", "1.2.3.4:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		key, err := keyfunc.Must(keyfunc.Address(func(*http.Request) string { return s }))(request(nil))
		if err == nil {
			canonical(t, key)
		} else if outcomeOf(key, err) != noKey {
			t.Fatalf("got %q, %v", key, err)
		}
	})
}

func TestIPv6Bits(t *testing.T) {
	const (
		proxy  = "2001:db8:aaaa::/48"
		client = "2001:db8:1:2:3:4:5:6"
	)
	proxied := request(func(r *http.Request) {
		r.RemoteAddr = "[2001:db8:aaaa:bbbb:cccc::1]:1"
		r.Header.Set("X-Forwarded-For", client)
		r.Header.Set("Forwarded", `for="[`+client+`]"`)
		r.Header.Set("X-Real-Ip", client)
	})
	for _, c := range []struct {
		name         string
		bits         int
		client, peer string
	}{
		{"zero", 0, "2001:db8:1:2::/64", "2001:db8:aaaa:bbbb::/64"},
		{"48", 48, "2001:db8:1::/48", "2001:db8:aaaa::/48"},
		{"56", 56, "2001:db8:1::/56", "2001:db8:aaaa:bb00::/56"},
		{"64", 64, "2001:db8:1:2::/64", "2001:db8:aaaa:bbbb::/64"},
		{"128", 128, "2001:db8:1:2:3:4:5:6/128", "2001:db8:aaaa:bbbb:cccc::1/128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer := keyfunc.Must(keyfunc.Client{IPv6Bits: c.bits}.Key())
			expect(t, peer, proxied, c.peer)
			expect(t, peer, request(nil), "192.0.2.7")
			read := func(*http.Request) string { return client }
			for _, from := range []keyfunc.Client{
				{Proxies: []string{proxy}},
				{Proxies: []string{proxy}, Header: "x-forwarded-for"},
				{Proxies: []string{proxy}, Header: "forwarded"},
				{Proxies: []string{proxy}, Header: "x-real-ip"},
				{Hops: 1},
				{Read: read},
			} {
				from.IPv6Bits = c.bits
				expect(t, keyfunc.Must(from.Key()), proxied, c.client)
			}
		})
	}
}

// A Client reads lists as TrustedProxies and Forwarded do, and any other header as TrustedHeader.
func TestClientReadsEachHeaderByItsRules(t *testing.T) {
	const proxies = "192.0.2.0/24"
	r := request(func(r *http.Request) {
		r.Header.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.9")
		r.Header.Set("Forwarded", "for=198.51.100.2, for=192.0.2.9")
		r.Header["X-Real-Ip"] = []string{"198.51.100.4", "198.51.100.3"}
	})
	for _, c := range []struct{ header, want string }{
		{"", "198.51.100.1"},
		{"X-Forwarded-For", "198.51.100.1"},
		{"Forwarded", "198.51.100.2"},
		{"X-Real-Ip", "198.51.100.3"},
	} {
		client := keyfunc.Client{Proxies: []string{proxies}, Header: c.header}
		expect(t, keyfunc.Must(client.Key()), r, c.want)
	}
	unlisted := keyfunc.Client{Proxies: []string{"203.0.113.0/24"}}
	expect(t, keyfunc.Must(unlisted.Key()), r, "192.0.2.7")
}

func peerOf(r *http.Request) string {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	return host
}

// headerOr returns an extractor that believes a header from any peer.
func headerOr(name string) func(*http.Request) string {
	return func(r *http.Request) string {
		if v := r.Header.Get(name); v != "" {
			return v
		}
		return peerOf(r)
	}
}

func TestExtractorRejectsForgeableFunctions(t *testing.T) {
	for _, c := range []struct {
		name     string
		extract  func(*http.Request) string
		names    []string
		rejected bool
	}{
		{"peer", peerOf, nil, false},
		{"header from one proxy", func(r *http.Request) string {
			if peerOf(r) == "10.0.0.1" {
				return headerOr("X-Real-Ip")(r)
			}
			return peerOf(r)
		}, nil, false},
		{"leftmost X-Forwarded-For", headerOr("X-Forwarded-For"), nil, true},
		{"X-Real-Ip", headerOr("X-Real-Ip"), nil, true},
		{"CF-Connecting-IP", headerOr("Cf-Connecting-Ip"), nil, true},
		{"unknown header", headerOr("X-Cdn-Client"), nil, false},
		{"named header", headerOr("X-Cdn-Client"), []string{"", "x-cdn-client"}, true},
		{"private addresses in X-Real-Ip", func(r *http.Request) string {
			if v := r.Header.Get("X-Real-Ip"); strings.HasPrefix(v, "10.") {
				return v
			}
			return peerOf(r)
		}, nil, true},
		{"X-Real-Ip over IPv6 only", func(r *http.Request) string {
			if strings.Contains(peerOf(r), ":") {
				return headerOr("X-Real-Ip")(r)
			}
			return peerOf(r)
		}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			names := slices.Clone(c.names)
			key, err := keyfunc.Extractor(c.extract, names...)
			if (err != nil) != c.rejected {
				t.Fatalf("got %v, want an error: %v", err, c.rejected)
			}
			if err == nil {
				expect(t, key, request(nil), "192.0.2.7")
			}
		})
	}
}

// Some frameworks return the leftmost address if all hops are trusted. A client behind the proxies
// may have written that, so the key is the peer's address.
func TestExtractorFallsBackToPeer(t *testing.T) {
	trusted := func(s string) bool { return strings.HasPrefix(s, "10.") || strings.HasPrefix(s, "fd00:") }
	key := keyfunc.Must(keyfunc.Extractor(func(r *http.Request) string {
		hops := append(strings.Split(r.Header.Get("X-Forwarded-For"), ", "), peerOf(r))
		for _, hop := range slices.Backward(hops) {
			if hop != "" && !trusted(hop) {
				return hop
			}
		}
		return hops[0]
	}))
	for _, c := range []struct{ name, peer, header, want string }{
		{"client", "10.0.0.1:1", "6.6.6.6, 198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"insider", "10.0.0.1:1", "10.6.6.6, 10.7.7.7", "10.0.0.1"},
		{"insider with IPv6", "10.0.0.1:1", "fd00::6", "10.0.0.1"},
		{"direct client", "198.51.100.1:1", "10.6.6.6", "198.51.100.1"},
		{"garbage", "10.0.0.1:1", "unknown", noKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, key, request(func(r *http.Request) {
				r.RemoteAddr = c.peer
				r.Header.Set("X-Forwarded-For", c.header)
			}), c.want)
		})
	}
}

func TestInNetworks(t *testing.T) {
	in := core.Must(keyfunc.InNetworks(keyfunc.RemoteIP(), "10.0.0.0/8", "192.0.2.7", "2001:db8::/48", "::ffff:198.51.100.0/120"))
	for addr, want := range map[string]bool{
		"10.1.2.3:80": true, "11.0.0.1:80": false, "192.0.2.7:80": true, "192.0.2.8:80": false,
		"[::ffff:10.0.0.1]:80": true, "198.51.100.9:80": true, "198.51.101.9:80": false,
		"[2001:db8::1]:80": true, "[2001:db8:0:ffff::1]:80": true, "[2001:db8:1::1]:80": false,
		"@": false, "": false,
	} {
		if got := in(request(by(addr, "X-Any"))); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
	whole := keyfunc.Must(keyfunc.Client{IPv6Bits: 128}.Key())
	host := core.Must(keyfunc.InNetworks(whole, "2001:db8::1"))
	if !host(request(by("[2001:db8::1]:80", "X-Any"))) || host(request(by("[2001:db8::2]:80", "X-Any"))) {
		t.Error("a single host is not told from its neighbour")
	}
	for _, cidrs := range [][]string{nil, {"10.0.0.0/33"}, {"example.com"}} {
		if _, err := keyfunc.InNetworks(keyfunc.RemoteIP(), cidrs...); err == nil {
			t.Errorf("%q: no error", cidrs)
		}
	}
	if _, err := keyfunc.InNetworks(nil, "10.0.0.0/8"); err == nil {
		t.Error("no key: no error")
	}
}

func TestOneOf(t *testing.T) {
	of := core.Must(keyfunc.OneOf(keyfunc.RemoteIP(), "192.0.2.7", "192.0.2.8"))
	for addr, want := range map[string]bool{"192.0.2.7:1": true, "192.0.2.8:1": true, "192.0.2.9:1": false, "": false} {
		if got := of(request(by(addr, "X-Any"))); got != want {
			t.Errorf("%q: %v", addr, got)
		}
	}
	if _, err := keyfunc.OneOf(nil, "a"); err == nil {
		t.Error("no key: no error")
	}
	for _, keys := range [][]string{nil, {"a", ""}} {
		if _, err := keyfunc.OneOf(keyfunc.RemoteIP(), keys...); err == nil {
			t.Errorf("%q: no error", keys)
		}
	}
}
