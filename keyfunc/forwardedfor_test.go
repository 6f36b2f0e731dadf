package keyfunc_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

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
