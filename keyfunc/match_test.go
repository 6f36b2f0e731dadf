package keyfunc_test

import (
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

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
