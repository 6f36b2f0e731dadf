package keyfunc_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

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
