package keyfunc_test

import (
	"net/http"
	"net/netip"
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
