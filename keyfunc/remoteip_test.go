package keyfunc_test

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

func TestRemoteIP(t *testing.T) {
	from := func(peer string) func(*http.Request) { return by(peer, "X-Forwarded-For") }
	expectAll(t, keyfunc.RemoteIP(),
		row{"address and port", from("192.0.2.7:1234"), "192.0.2.7"},
		row{"bare address", from("192.0.2.7"), "192.0.2.7"},
		row{"IPv6 and port", from("[2001:db8:1:2:3::4]:1234"), "2001:db8:1:2::/64"},
		row{"IPv6 in brackets", from("[2001:db8:1:2:3::4]"), "2001:db8:1:2::/64"},
		row{"last address of the /64", from("[2001:db8:1:2:ffff:ffff:ffff:ffff]:2"), "2001:db8:1:2::/64"},
		row{"next /64", from("[2001:db8:1:3::1]:1"), "2001:db8:1:3::/64"},
		row{"zone", from("[fe80::1%eth0]:1234"), "fe80::/64"},
		row{"mapped IPv4", from("[::ffff:192.0.2.7]:1234"), "192.0.2.7"},
		row{"translated IPv4", from("[64:ff9b::c000:207]:1234"), "192.0.2.7"},
		row{"another translation prefix", from("[64:ff9b:1::c000:207]:1234"), "64:ff9b:1::/64"},
		row{"Unix socket", from("@"), noKey},
		row{"empty", from(""), noKey},
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
	from := func(peer, line string) func(*http.Request) { return by(peer, "X-Forwarded-For", line) }
	expectAll(t, key,
		row{"client", from("10.0.0.1:1", "6.6.6.6, 198.51.100.1, 10.0.0.2"), "198.51.100.1"},
		row{"insider", from("10.0.0.1:1", "10.6.6.6, 10.7.7.7"), "10.0.0.1"},
		row{"insider with IPv6", from("10.0.0.1:1", "fd00::6"), "10.0.0.1"},
		row{"direct client", from("198.51.100.1:1", "10.6.6.6"), "198.51.100.1"},
		row{"garbage", from("10.0.0.1:1", "unknown"), noKey},
	)
}

func TestInNetworks(t *testing.T) {
	in := core.Must(keyfunc.InNetworks(keyfunc.RemoteIP(), "10.0.0.0/8", "192.0.2.7", "2001:db8::/48", "::ffff:198.51.100.0/120"))
	for addr, want := range map[string]bool{
		"10.1.2.3:80": true, "11.0.0.1:80": false, "192.0.2.7:80": true, "192.0.2.8:80": false,
		"[::ffff:10.0.0.1]:80": true, "198.51.100.9:80": true, "198.51.101.9:80": false,
		"[2001:db8::1]:80": true, "[2001:db8:0:ffff::1]:80": true, "[2001:db8:1::1]:80": false,
		"@": false, "": false,
	} {
		gatetest.Equal(t, in(request(by(addr, "X-Any"))), want, "%q", addr)
	}
	whole := keyfunc.Must(keyfunc.Client{IPv6Bits: 128}.Key())
	host := core.Must(keyfunc.InNetworks(whole, "2001:db8::1"))
	if !host(request(by("[2001:db8::1]:80", "X-Any"))) || host(request(by("[2001:db8::2]:80", "X-Any"))) {
		t.Error("a single host is not told from its neighbour")
	}
	for _, cidrs := range [][]string{nil, {"10.0.0.0/33"}, {"example.com"}} {
		gatetest.Fails(t, gatetest.Err(keyfunc.InNetworks(keyfunc.RemoteIP(), cidrs...)), "%q: no error", cidrs)
	}
	gatetest.Fails(t, gatetest.Err(keyfunc.InNetworks(nil, "10.0.0.0/8")), "no key: no error")
}

func TestOneOf(t *testing.T) {
	of := core.Must(keyfunc.OneOf(keyfunc.RemoteIP(), "192.0.2.7", "192.0.2.8"))
	for addr, want := range map[string]bool{"192.0.2.7:1": true, "192.0.2.8:1": true, "192.0.2.9:1": false, "": false} {
		gatetest.Equal(t, of(request(by(addr, "X-Any"))), want, "%q", addr)
	}
	gatetest.Fails(t, gatetest.Err(keyfunc.OneOf(nil, "a")), "no key: no error")
	for _, keys := range [][]string{nil, {"a", ""}} {
		gatetest.Fails(t, gatetest.Err(keyfunc.OneOf(keyfunc.RemoteIP(), keys...)), "%q: no error", keys)
	}
}

func TestTrustedHops(t *testing.T) {
	for _, c := range []struct {
		name  string
		hops  int
		lines []string
		want  string
	}{
		{"one proxy", 1, []string{"6.6.6.6, 198.51.100.1"}, "198.51.100.1"},
		{"two proxies", 2, []string{"6.6.6.6, 198.51.100.1, 203.0.113.5"}, "198.51.100.1"},
		{"two lines", 2, []string{"6.6.6.6, 198.51.100.1", "203.0.113.5"}, "198.51.100.1"},
		{"garbage to the right of the place", 3, []string{"198.51.100.1, unknown, "}, "198.51.100.1"},
		{"fewer addresses than proxies", 2, []string{"198.51.100.1"}, "192.0.2.7"},
		{"garbage in the place", 2, []string{"6.6.6.6, unknown, 203.0.113.5"}, "192.0.2.7"},
		{"no header", 1, nil, "192.0.2.7"},
		{"50 proxies", 50, []string{"198.51.100.1" + strings.Repeat(",203.0.113.5", 49)}, "198.51.100.1"},
		{"beyond 4 KiB", 2, []string{"198.51.100.1," + strings.Repeat(" ", 4096)}, "192.0.2.7"},
		{"1 MiB to the left", 1, []string{strings.Repeat("6.6.6.6,", 1<<17) + "198.51.100.1"}, "198.51.100.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := keyfunc.Must(keyfunc.TrustedHops(c.hops))
			r := request(func(r *http.Request) { r.Header["X-Forwarded-For"] = c.lines })
			expect(t, key, r, c.want)
		})
	}
}

// A proxy on a Unix socket has no address, and net/http names it in three ways.
func TestUnixSocket(t *testing.T) {
	must, socket := keyfunc.Must, keyfunc.UnixSocket
	client := keyfunc.Client{Proxies: []string{socket}, Header: "Forwarded"}
	for _, c := range []struct {
		name   string
		key    keyfunc.Func
		header string
		trusts bool
	}{
		{"hops", must(keyfunc.TrustedHops(1)), "X-Forwarded-For", true},
		{"proxies", must(keyfunc.TrustedProxies(socket)), "X-Forwarded-For", true},
		{"proxies by address too", must(keyfunc.TrustedProxies("10.0.0.0/8", socket)), "X-Forwarded-For", true},
		{"header", must(keyfunc.TrustedHeader("X-Real-Ip", socket)), "X-Real-Ip", true},
		{"forwarded", must(client.Key()), "Forwarded", true},
		{"proxies by address", must(keyfunc.TrustedProxies("0.0.0.0/0", "::/0")), "X-Forwarded-For", false},
		{"peer", keyfunc.RemoteIP(), "X-Forwarded-For", false},
	} {
		for _, peer := range []string{"@", "", "@name", "/run/proxy.sock"} {
			t.Run(c.name+" "+peer, func(t *testing.T) {
				from := func(value, want string) {
					expect(t, c.key, request(func(r *http.Request) {
						r.RemoteAddr = peer
						r.Header.Set(c.header, value)
					}), want)
				}
				value, want := "198.51.100.7", "198.51.100.7"
				if c.header == "Forwarded" {
					value = "for=" + value
				}
				if !c.trusts {
					want = noKey
				}
				from(value, want)
				from("unknown", noKey)
			})
		}
	}
	untrusted := request(func(r *http.Request) { r.Header.Set("X-Forwarded-For", "198.51.100.7") })
	expect(t, must(keyfunc.TrustedProxies(socket)), untrusted, "192.0.2.7")
}

func TestTrustedHeader(t *testing.T) {
	key := keyfunc.Must(keyfunc.TrustedHeader("cf-connecting-ip", "10.0.0.0/8"))
	from := func(peer string, lines ...string) func(*http.Request) { return by(peer, "Cf-Connecting-Ip", lines...) }
	const proxy = "10.0.0.1:1"
	expectAll(t, key,
		row{"set by the proxy", from(proxy, " 198.51.100.1"), "198.51.100.1"},
		row{"last of two lines", from(proxy, "6.6.6.6", "198.51.100.1"), "198.51.100.1"},
		row{"untrusted peer", from("192.0.2.7:1", "6.6.6.6"), "192.0.2.7"},
		row{"list", from(proxy, "6.6.6.6, 198.51.100.1"), "10.0.0.1"},
		row{"empty last line", from(proxy, "6.6.6.6", ""), "10.0.0.1"},
		row{"1 MiB", from(proxy, strings.Repeat("6", 1<<20)), "10.0.0.1"},
		row{"missing", from(proxy), "10.0.0.1"},
	)
}

func TestTrustedProxies(t *testing.T) {
	key := keyfunc.Must(keyfunc.TrustedProxies("10.0.0.0/8", "::ffff:172.16.0.0/108", "203.0.113.9", "2001:db8:ffff::/48"))
	from := func(peer string, lines ...string) func(*http.Request) { return by(peer, "X-Forwarded-For", lines...) }
	const proxy = "10.0.0.1:1"
	padded := strings.Repeat(" ", 1000) + "10.0.0.2"
	many := func(line string, n int) []string {
		return append([]string{"198.51.100.1"}, slices.Repeat([]string{line}, n)...)
	}
	expectAll(t, key,
		row{"direct client", from("192.0.2.7:1"), "192.0.2.7"},
		row{"untrusted peer", from("192.0.2.7:1", "198.51.100.1"), "192.0.2.7"},
		row{"one proxy", from(proxy, "198.51.100.1"), "198.51.100.1"},
		row{"forged leftmost", from(proxy, "1.1.1.1, 198.51.100.1"), "198.51.100.1"},
		row{"all lines count", from(proxy, "1.1.1.1", "198.51.100.1", "10.0.0.2"), "198.51.100.1"},
		row{"no header", from(proxy), "10.0.0.1"},
		row{"all trusted", from(proxy, "10.0.0.3, 10.0.0.2"), "10.0.0.1"},
		row{"garbage reached", from(proxy, "198.51.100.1, unknown, 10.0.0.2"), "10.0.0.1"},
		row{"garbage not reached", from(proxy, "unknown, 198.51.100.1, 10.0.0.2"), "198.51.100.1"},
		row{"port", from(proxy, "198.51.100.1:443"), "198.51.100.1"},
		row{"brackets and port", from(proxy, "[2001:db8:5::1]:443"), "2001:db8:5::/64"},
		row{"mapped proxy", from(proxy, "198.51.100.1, ::ffff:10.0.0.2"), "198.51.100.1"},
		row{"zoned proxy", from(proxy, "198.51.100.1, 2001:db8:ffff::2%eth0"), "198.51.100.1"},
		row{"mapped peer", from("[::ffff:10.0.0.1]:1", "198.51.100.1"), "198.51.100.1"},
		row{"translated proxy", from(proxy, "198.51.100.1, 64:ff9b::10.0.0.2"), "198.51.100.1"},
		row{"mapped CIDR", from("172.17.0.1:1", "198.51.100.1"), "198.51.100.1"},
		row{"single address", from("203.0.113.9:1", "198.51.100.1"), "198.51.100.1"},
		row{"neighbour of the single address", from("203.0.113.8:1", "198.51.100.1"), "203.0.113.8"},
		row{"trusted IPv6 peer", from("[2001:db8:ffff::1]:1", "198.51.100.1"), "198.51.100.1"},
		row{"50 hops", from(proxy, "198.51.100.1"+strings.Repeat(",10.0.0.2", 49)), "198.51.100.1"},
		row{"51 hops", from(proxy, "198.51.100.1"+strings.Repeat(",10.0.0.2", 50)), "10.0.0.1"},
		row{"1 MiB to the left", from(proxy, strings.Repeat("1.1.1.1,", 1<<17)+"198.51.100.1"), "198.51.100.1"},
		row{"4 KiB of spaces", from(proxy, "198.51.100.1"+strings.Repeat(" ", 4096)+",10.0.0.2"), "10.0.0.1"},
		row{"no peer", from("@", "198.51.100.1"), noKey},
		row{"lines of 50 hops", from(proxy, many("10.0.0.2", 49)...), "198.51.100.1"},
		row{"lines of 51 hops", from(proxy, many("10.0.0.2", 50)...), "10.0.0.1"},
		row{"lines below 4 KiB", from(proxy, many(padded, 4)...), "198.51.100.1"},
		row{"lines above 4 KiB", from(proxy, many(padded, 5)...), "10.0.0.1"},
		row{"empty element", from(proxy, "198.51.100.1, ,10.0.0.2"), "10.0.0.1"},
		row{"empty last line", from(proxy, "198.51.100.1", ""), "10.0.0.1"},
		row{"address cut at 4 KiB", from(proxy, "9"+strings.Repeat("8", 4096-len(",10.0.0.2")-1)+",10.0.0.2"), "10.0.0.1"},
	)
}

func TestTrustedProxiesBoundsMemory(t *testing.T) {
	key := keyfunc.Must(keyfunc.TrustedProxies("10.0.0.0/8"))
	for _, c := range []struct {
		name  string
		lines []string
		limit float64 // of allocations; a hop with a port costs the error of one failed parse
	}{
		{"one line of trusted hops", []string{strings.Repeat("10.0.0.2,", 1<<17) + "10.0.0.2"}, 4},
		{"one line of hops with ports", []string{strings.Repeat("10.0.0.2:80,", 1<<17) + "10.0.0.2:80"}, 54},
		{"many lines of trusted hops", slices.Repeat([]string{"10.0.0.2"}, 1<<17), 4},
		{"many empty lines", slices.Repeat([]string{""}, 1<<17), 5},
		{"one hop without a comma", []string{strings.Repeat("1", 1<<20)}, 4},
		{"spaces", []string{strings.Repeat(" ", 1<<20)}, 4},
		{"commas", []string{strings.Repeat(",", 1<<20)}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(by("10.0.0.1:1", "X-Forwarded-For", c.lines...))
			expect(t, key, r, "10.0.0.1")
			if n := testing.AllocsPerRun(20, func() { _, _ = key(r) }); n > c.limit {
				t.Errorf("%v allocations, want at most %v", n, c.limit)
			}
		})
	}
}

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
		{"quoted with port", []string{`for="198.51.100.1:4711"`}, "198.51.100.1"},
		{"port without quotes", []string{`for=198.51.100.1:4711`}, "198.51.100.1"},
		{"IPv6 with port", []string{`for="[2001:db8:cafe::17]:4711"`}, "2001:db8:cafe::/64"},
		{"escaped characters", []string{`for="198.51\.100.\1"`}, "198.51.100.1"},
		{"empty pairs", []string{`;for=198.51.100.1;;proto=http;`}, "198.51.100.1"},
		{"white space", []string{"for=203.0.113.6 ,\tfor=198.51.100.1 ; proto=http , for=10.0.0.2 "}, "198.51.100.1"},
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
		{"obfuscated port", []string{`for=6.6.6.6, for="198.51.100.1:_x"`}, peer},
		{"no for", []string{"for=6.6.6.6, proto=https"}, peer},
		{"two for", []string{"for=198.51.100.1;for=6.6.6.6"}, peer},
		{"no value", []string{"for"}, peer},
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

// Whatever headers say, only a proxy changes the key of its client, and every key has one spelling.
func FuzzBehindProxies(f *testing.F) {
	for _, s := range []string{
		"1.1.1.1, 198.51.100.1", "10.0.0.2\n198.51.100.1:80", "::ffff:10.0.0.2", "[2001:db8::1%x]:2", ",,", "10.0.0.2,unknown",
		`for=192.0.2.60;proto=http;by=203.0.113.43`, `for="[2001:db8:cafe::17]:4711"`, "for=unknown, for=_x", `for="1.2.3.4\"`,
		`for="[::ffff:10.0.0.2]", for="10.0.0.9"`, `host="a, for=1.1.1.1";for=2.2.2.2`, "for=1.1.1.1\nfor=10.0.0.1", `for="\1.1.1.1"`, ";;=;",
	} {
		f.Add("10.0.0.1:1", s, 1)
		f.Add("192.0.2.1:1", s, 3)
	}
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	v4, v6 := proxies[0].String(), proxies[1].String()
	walks := []keyfunc.Func{keyfunc.Must(keyfunc.TrustedProxies(v4, v6)), keyfunc.Must(keyfunc.Forwarded(v4, v6))}
	header := keyfunc.Must(keyfunc.TrustedHeader("X-Real-Ip", v4, v6))
	trusted := func(addr netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(addr) })
	}
	f.Fuzz(func(t *testing.T, peer, text string, n int) {
		lines := strings.Split(text, "\n")
		r := request(func(r *http.Request) {
			r.RemoteAddr = peer
			r.Header["X-Forwarded-For"], r.Header["Forwarded"], r.Header["X-Real-Ip"] = lines, lines, lines
		})
		if hops, err := keyfunc.TrustedHops(n); err == nil {
			if got, err := hops(r); err == nil {
				canonical(t, got)
			}
		}
		direct, directErr := keyfunc.RemoteIP()(r)
		for _, key := range append(walks, header) {
			got, err := key(r)
			gatetest.Need(t, err == nil, directErr == nil, "%v, but RemoteIP: %v", err, directErr)
			if err == nil && canonical(t, got) != canonical(t, direct) && !trusted(canonical(t, direct)) {
				t.Fatalf("untrusted peer %s changed its key to %s", direct, got)
			}
		}
		for _, key := range walks {
			if got, err := key(r); err == nil && got != direct && trusted(canonical(t, got)) {
				t.Fatalf("the key %s is a proxy's", got)
			}
		}
	})
}
