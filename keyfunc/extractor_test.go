package keyfunc_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

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
