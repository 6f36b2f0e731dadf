package keyfunc_test

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

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
