package keyfunc_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/keyfunc"
)

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
		{"port", 1, []string{"198.51.100.1:80"}, "198.51.100.1"},
		{"IPv6", 1, []string{"[2001:db8:5::1]:80"}, "2001:db8:5::/64"},
		{"mapped", 1, []string{"::ffff:198.51.100.1"}, "198.51.100.1"},
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
		row{"IPv6", from(proxy, "2001:db8:5::1"), "2001:db8:5::/64"},
		row{"last of two lines", from(proxy, "6.6.6.6", "198.51.100.1"), "198.51.100.1"},
		row{"untrusted peer", from("192.0.2.7:1", "6.6.6.6"), "192.0.2.7"},
		row{"list", from(proxy, "6.6.6.6, 198.51.100.1"), "10.0.0.1"},
		row{"garbage", from(proxy, "not an ip"), "10.0.0.1"},
		row{"empty last line", from(proxy, "6.6.6.6", ""), "10.0.0.1"},
		row{"1 MiB", from(proxy, strings.Repeat("6", 1<<20)), "10.0.0.1"},
		row{"missing", from(proxy), "10.0.0.1"},
	)
}

func FuzzTrustedHops(f *testing.F) {
	f.Add(1, "1.1.1.1, 198.51.100.1")
	f.Add(2, "10.0.0.2\n198.51.100.1:80")
	f.Add(3, ",,")
	f.Fuzz(func(t *testing.T, n int, header string) {
		key, err := keyfunc.TrustedHops(n)
		if err != nil {
			return
		}
		got := gatetest.Must(key(request(func(r *http.Request) { r.Header["X-Forwarded-For"] = strings.Split(header, "\n") })))(t)
		canonical(t, got)
	})
}

func FuzzTrustedHeader(f *testing.F) {
	f.Add("10.0.0.1:1", "198.51.100.1")
	f.Add("192.0.2.1:1", "[::1]:2")
	f.Add("10.0.0.1:1", "1.1.1.1\n2001:db8::%x")
	trusted := netip.MustParsePrefix("10.0.0.0/8")
	key := keyfunc.Must(keyfunc.TrustedHeader("X-Real-Ip", trusted.String()))
	f.Fuzz(func(t *testing.T, peer, header string) {
		r := request(func(r *http.Request) {
			r.RemoteAddr = peer
			r.Header["X-Real-Ip"] = strings.Split(header, "\n")
		})
		got, direct, ok := besidePeer(t, r, key)
		if ok && got != direct && !trusted.Contains(canonical(t, direct)) {
			t.Fatalf("untrusted peer %s changed its key to %s", direct, got)
		}
	})
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
		row{"two proxies", from(proxy, "1.1.1.1, 198.51.100.1, 10.0.0.2"), "198.51.100.1"},
		row{"all lines count", from(proxy, "1.1.1.1", "198.51.100.1", "10.0.0.2"), "198.51.100.1"},
		row{"no header", from(proxy), "10.0.0.1"},
		row{"empty header", from(proxy, ""), "10.0.0.1"},
		row{"all trusted", from(proxy, "10.0.0.3, 10.0.0.2"), "10.0.0.1"},
		row{"garbage reached", from(proxy, "198.51.100.1, unknown, 10.0.0.2"), "10.0.0.1"},
		row{"garbage not reached", from(proxy, "unknown, 198.51.100.1, 10.0.0.2"), "198.51.100.1"},
		row{"port", from(proxy, "198.51.100.1:443"), "198.51.100.1"},
		row{"brackets and port", from(proxy, "[2001:db8:5::1]:443"), "2001:db8:5::/64"},
		row{"brackets", from(proxy, "[2001:db8:5::1]"), "2001:db8:5::/64"},
		row{"bare IPv6", from(proxy, "2001:db8:5::1"), "2001:db8:5::/64"},
		row{"mapped proxy", from(proxy, "198.51.100.1, ::ffff:10.0.0.2"), "198.51.100.1"},
		row{"zoned proxy", from(proxy, "198.51.100.1, 2001:db8:ffff::2%eth0"), "198.51.100.1"},
		row{"mapped peer", from("[::ffff:10.0.0.1]:1", "198.51.100.1"), "198.51.100.1"},
		row{"translated proxy", from(proxy, "198.51.100.1, 64:ff9b::10.0.0.2"), "198.51.100.1"},
		row{"mapped CIDR", from("172.17.0.1:1", "198.51.100.1"), "198.51.100.1"},
		row{"single address", from("203.0.113.9:1", "198.51.100.1"), "198.51.100.1"},
		row{"neighbour of the single address", from("203.0.113.8:1", "198.51.100.1"), "203.0.113.8"},
		row{"trusted IPv6 peer", from("[2001:db8:ffff::1]:1", "198.51.100.1"), "198.51.100.1"},
		row{"spaces and tabs", from(proxy, "1.1.1.1 ,\t198.51.100.1 , 10.0.0.2\t"), "198.51.100.1"},
		row{"50 hops", from(proxy, "198.51.100.1"+strings.Repeat(",10.0.0.2", 49)), "198.51.100.1"},
		row{"51 hops", from(proxy, "198.51.100.1"+strings.Repeat(",10.0.0.2", 50)), "10.0.0.1"},
		row{"1 MiB to the left", from(proxy, strings.Repeat("1.1.1.1,", 1<<17)+"198.51.100.1"), "198.51.100.1"},
		row{"hop of 1 MiB", from(proxy, strings.Repeat("1", 1<<20)), "10.0.0.1"},
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
			r := request(func(r *http.Request) {
				r.RemoteAddr = "10.0.0.1:1"
				r.Header["X-Forwarded-For"] = c.lines
			})
			expect(t, key, r, "10.0.0.1")
			if n := testing.AllocsPerRun(20, func() { _, _ = key(r) }); n > c.limit {
				t.Errorf("%v allocations, want at most %v", n, c.limit)
			}
		})
	}
}

func FuzzTrustedProxies(f *testing.F) {
	for _, s := range []string{
		"1.1.1.1, 198.51.100.1", "10.0.0.2\n198.51.100.1:80", "::ffff:10.0.0.2", "[2001:db8::1%x]:2", ",,", "10.0.0.2,unknown",
	} {
		f.Add("10.0.0.1:1", s)
		f.Add("192.0.2.1:1", s)
	}
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	key := keyfunc.Must(keyfunc.TrustedProxies(proxies[0].String(), proxies[1].String()))
	f.Fuzz(func(t *testing.T, peer, header string) {
		r := request(func(r *http.Request) {
			r.RemoteAddr = peer
			r.Header["X-Forwarded-For"] = strings.Split(header, "\n")
		})
		onlyProxiesChangeTheKey(t, r, key, proxies...)
	})
}
