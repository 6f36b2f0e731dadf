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
	for _, c := range []struct {
		name, peer string
		lines      []string
		want       string
	}{
		{"direct client", "192.0.2.7:1", nil, "192.0.2.7"},
		{"untrusted peer", "192.0.2.7:1", []string{"198.51.100.1"}, "192.0.2.7"},
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
		{"mapped proxy", "10.0.0.1:1", []string{"198.51.100.1, ::ffff:10.0.0.2"}, "198.51.100.1"},
		{"zoned proxy", "10.0.0.1:1", []string{"198.51.100.1, 2001:db8:ffff::2%eth0"}, "198.51.100.1"},
		{"mapped peer", "[::ffff:10.0.0.1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"translated proxy", "10.0.0.1:1", []string{"198.51.100.1, 64:ff9b::10.0.0.2"}, "198.51.100.1"},
		{"mapped CIDR", "172.17.0.1:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"single address", "203.0.113.9:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"neighbour of the single address", "203.0.113.8:1", []string{"198.51.100.1"}, "203.0.113.8"},
		{"trusted IPv6 peer", "[2001:db8:ffff::1]:1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"spaces and tabs", "10.0.0.1:1", []string{"1.1.1.1 ,\t198.51.100.1 , 10.0.0.2\t"}, "198.51.100.1"},
		{"50 hops", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(",10.0.0.2", 49)}, "198.51.100.1"},
		{"51 hops", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(",10.0.0.2", 50)}, "10.0.0.1"},
		{"1 MiB to the left", "10.0.0.1:1", []string{strings.Repeat("1.1.1.1,", 1<<17) + "198.51.100.1"}, "198.51.100.1"},
		{"hop of 1 MiB", "10.0.0.1:1", []string{strings.Repeat("1", 1<<20)}, "10.0.0.1"},
		{"4 KiB of spaces", "10.0.0.1:1", []string{"198.51.100.1" + strings.Repeat(" ", 4096) + ",10.0.0.2"}, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, key, request(func(r *http.Request) {
				r.RemoteAddr = c.peer
				r.Header["X-Forwarded-For"] = c.lines
			}), c.want)
		})
	}
	t.Run("no peer", func(t *testing.T) {
		expect(t, key, request(func(r *http.Request) {
			r.RemoteAddr = "@"
			r.Header.Set("X-Forwarded-For", "198.51.100.1")
		}), noKey)
	})
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

func TestTrustedProxiesBoundsAllLines(t *testing.T) {
	key := keyfunc.Must(keyfunc.TrustedProxies("10.0.0.0/8"))
	padded := strings.Repeat(" ", 1000) + "10.0.0.2"
	for _, c := range []struct {
		name  string
		lines []string
		want  string
	}{
		{"50 hops", append([]string{"198.51.100.1"}, slices.Repeat([]string{"10.0.0.2"}, 49)...), "198.51.100.1"},
		{"51 hops", append([]string{"198.51.100.1"}, slices.Repeat([]string{"10.0.0.2"}, 50)...), "10.0.0.1"},
		{"below 4 KiB", append([]string{"198.51.100.1"}, slices.Repeat([]string{padded}, 4)...), "198.51.100.1"},
		{"above 4 KiB", append([]string{"198.51.100.1"}, slices.Repeat([]string{padded}, 5)...), "10.0.0.1"},
		{"empty element", []string{"198.51.100.1, ,10.0.0.2"}, "10.0.0.1"},
		{"empty last line", []string{"198.51.100.1", ""}, "10.0.0.1"},
		{"address cut at 4 KiB", []string{"9" + strings.Repeat("8", 4096-len(",10.0.0.2")-1) + ",10.0.0.2"}, "10.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, key, request(func(r *http.Request) {
				r.RemoteAddr = "10.0.0.1:1"
				r.Header["X-Forwarded-For"] = c.lines
			}), c.want)
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
