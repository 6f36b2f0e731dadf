package keyfunc_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

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

func BenchmarkRemoteIP(b *testing.B) {
	key := keyfunc.RemoteIP()
	r := &http.Request{RemoteAddr: "192.0.2.7:1234"}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = key(r)
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
