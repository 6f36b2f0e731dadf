package keyfunc_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestAddress(t *testing.T) {
	for read, want := range map[string]string{
		"198.51.100.1": "198.51.100.1", "::ffff:198.51.100.1": "198.51.100.1", "2001:db8:0:0::1": "2001:db8::/64",
		"fe80::1%eth0": "fe80::/64", "": "", "unknown": "", "not an ip ☃": "", strings.Repeat("1", 1<<20): "",
	} {
		got, err := keyfunc.Address(func(*http.Request) string { return read })(request(nil))
		if got != want || (want == "") != errors.Is(err, keyfunc.ErrNoKey) {
			t.Errorf("%.40q: got %q, %v; want %q", read, got, err, want)
		}
	}
	if _, err := keyfunc.Address(nil)(request(nil)); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("nil: %v", err)
	}
	if _, err := keyfunc.Extractor(nil)(request(nil)); err == nil || errors.Is(err, keyfunc.ErrNoKey) {
		t.Errorf("nil extractor: %v", err)
	}
}

func TestExtractorIsTriedOut(t *testing.T) {
	peer := func(r *http.Request) string { host, _, _ := net.SplitHostPort(r.RemoteAddr); return host }
	header := func(name string) func(*http.Request) string {
		return func(r *http.Request) string {
			if v := r.Header.Get(name); v != "" {
				return v
			}
			return peer(r)
		}
	}
	for _, c := range []struct {
		name     string
		extract  func(*http.Request) string
		believed bool
	}{
		{"the peer", peer, false},
		{"a proxy's word", func(r *http.Request) string {
			if peer(r) == "10.0.0.1" {
				return header("X-Real-Ip")(r)
			}
			return peer(r)
		}, false},
		{"leftmost X-Forwarded-For", header("X-Forwarded-For"), true},
		{"X-Real-Ip of anybody", header("X-Real-Ip"), true},
		{"CF-Connecting-IP of anybody", header("Cf-Connecting-Ip"), true},
		{"private addresses of anybody", func(r *http.Request) string {
			if v := r.Header.Get("X-Real-Ip"); strings.HasPrefix(v, "10.") {
				return v
			}
			return peer(r)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			key := keyfunc.Extractor(c.extract)
			for range 2 { // what was found out at the first request holds for the next
				got, err := key(request(nil))
				if c.believed && (err == nil || errors.Is(err, keyfunc.ErrNoKey)) {
					t.Errorf("got %q, %v", got, err)
				}
				if !c.believed && (got != "192.0.2.7" || err != nil) {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
}

// Where all hops are trusted, as with leftmost addresses of a framework, the key is the peer's.
func TestExtractorOfTrustedHops(t *testing.T) {
	trusted := func(s string) bool { return strings.HasPrefix(s, "10.") || strings.HasPrefix(s, "fd00:") }
	key := keyfunc.Extractor(func(r *http.Request) string {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		hops := append(strings.Split(r.Header.Get("X-Forwarded-For"), ", "), host)
		for i := len(hops) - 1; i >= 0; i-- {
			if hops[i] != "" && !trusted(hops[i]) {
				return hops[i]
			}
		}
		return hops[0]
	})
	for _, c := range []struct{ name, peer, header, want string }{
		{"a client", "10.0.0.1:1", "6.6.6.6, 198.51.100.1, 10.0.0.2", "198.51.100.1"},
		{"an insider", "10.0.0.1:1", "10.6.6.6, 10.7.7.7", "10.0.0.1"},
		{"an insider with IPv6", "10.0.0.1:1", "fd00::6", "10.0.0.1"},
		{"a direct client", "198.51.100.1:1", "10.6.6.6", "198.51.100.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := key(request(func(r *http.Request) {
				r.RemoteAddr = c.peer
				r.Header.Set("X-Forwarded-For", c.header)
			}))
			if got != c.want || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

func TestIPv6Prefix(t *testing.T) {
	const forged = "2001:db8:1:2:3:4:5:6"
	r := request(func(r *http.Request) {
		r.RemoteAddr = "[2001:db8:aaaa:bbbb:cccc::1]:1"
		r.Header.Set("X-Forwarded-For", forged)
		r.Header.Set("Forwarded", `for="[`+forged+`]"`)
		r.Header.Set("X-Real-Ip", forged)
	})
	const proxy = "2001:db8:aaaa::/48"
	all := func(p keyfunc.IPv6Prefix) (keys []keyfunc.Func, errs []error) {
		add := func(f keyfunc.Func, err error) { keys, errs = append(keys, f), append(errs, err) }
		add(p.TrustedProxies(proxy))
		add(p.Forwarded(proxy))
		add(p.TrustedHops(1))
		add(p.TrustedHeader("X-Real-Ip", proxy))
		add(p.Address(func(*http.Request) string { return forged }), nil)
		peer := func(r *http.Request) string { return r.RemoteAddr }
		add(p.Extractor(peer), nil)
		add(p.RemoteIP(), nil)
		return keys, errs
	}
	for _, c := range []struct {
		prefix       keyfunc.IPv6Prefix
		client, peer string
	}{
		{0, "2001:db8:1:2::/64", "2001:db8:aaaa:bbbb::/64"},
		{48, "2001:db8:1::/48", "2001:db8:aaaa::/48"},
		{56, "2001:db8:1::/56", "2001:db8:aaaa:bb00::/56"},
		{64, "2001:db8:1:2::/64", "2001:db8:aaaa:bbbb::/64"},
		{128, "2001:db8:1:2:3:4:5:6/128", "2001:db8:aaaa:bbbb:cccc::1/128"},
	} {
		keys, errs := all(c.prefix)
		for i, key := range keys {
			if errs[i] != nil {
				t.Fatalf("/%d: %v", c.prefix, errs[i])
			}
			want := c.client
			if i >= len(keys)-2 {
				want = c.peer
			}
			if got, err := key(r); got != want || err != nil {
				t.Errorf("/%d, constructor %d: got %q, %v; want %q", c.prefix, i, got, err, want)
			}
			four := request(func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1" })
			if got, err := c.prefix.RemoteIP()(four); got != "192.0.2.7" || err != nil {
				t.Errorf("/%d: IPv4 is %q, %v", c.prefix, got, err)
			}
		}
	}
	for _, p := range []keyfunc.IPv6Prefix{-1, 1, 47, 129} {
		keys, errs := all(p)
		for i := range keys {
			err := errs[i]
			if err == nil {
				_, err = keys[i](r)
			}
			if err == nil || errors.Is(err, keyfunc.ErrNoKey) || !strings.Contains(err.Error(), "IPv6Prefix is ") {
				t.Errorf("/%d, constructor %d: %v", p, i, err)
			}
		}
		_, err := p.TrustedHeader("", "nonsense")
		if err == nil || strings.Count(err.Error(), "\n") != 2 {
			t.Errorf("/%d: not every fault is in %v", p, err)
		}
	}
}
