package keyfunc_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

func TestRemoteIP(t *testing.T) {
	for _, c := range []struct{ name, peer, want string }{
		{"address and port", "192.0.2.7:1234", "192.0.2.7"},
		{"bare address", "192.0.2.7", "192.0.2.7"},
		{"IPv6 and port", "[2001:db8:1:2:3::4]:1234", "2001:db8:1:2::/64"},
		{"bare IPv6", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{"IPv6 in brackets", "[2001:db8:1:2:3::4]", "2001:db8:1:2::/64"},
		{"another address of the same /64", "[2001:db8:1:2:ffff::]:1", "2001:db8:1:2::/64"},
		{"zone", "[fe80::1%eth0]:1234", "fe80::/64"},
		{"mapped IPv4", "[::ffff:192.0.2.7]:1234", "192.0.2.7"},
		{"translated IPv4", "[64:ff9b::c000:207]:1234", "192.0.2.7"},
		{"another translation prefix", "[64:ff9b:1::c000:207]:1234", "64:ff9b:1::/64"},
		{"Unix socket", "@", noKey},
		{"empty", "", noKey},
		{"host name", "example.com:80", noKey},
		{"IPv4 in brackets", "[192.0.2.7]", noKey},
		{"1 MiB", strings.Repeat("1", 1<<20), noKey},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(func(r *http.Request) { r.RemoteAddr = c.peer })
			expect(t, keyfunc.RemoteIP(), r, c.want)
		})
	}
}

func TestRemoteIPAllocations(t *testing.T) {
	key := keyfunc.RemoteIP()
	r := request(func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1234" })
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

func TestRemoteIPCountsIPv6ByPrefix(t *testing.T) {
	keyOf := func(peer string) string {
		return core.Must(keyfunc.RemoteIP()(request(func(r *http.Request) { r.RemoteAddr = peer })))
	}
	own := keyOf("[2001:db8:1:2::1]:1")
	for _, c := range []struct {
		name, peer string
		same       bool
	}{
		{"last address of the /64", "[2001:db8:1:2:ffff:ffff:ffff:ffff]:2", true},
		{"next /64", "[2001:db8:1:3::1]:1", false},
		{"previous /64", "[2001:db8:1:1:ffff:ffff:ffff:ffff]:1", false},
		{"other /48", "[2001:db8:2:2::1]:1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := keyOf(c.peer); (got == own) != c.same {
				t.Errorf("got %q beside %q, want the same: %v", got, own, c.same)
			}
		})
	}
}

func BenchmarkRemoteIP(b *testing.B) {
	key := keyfunc.RemoteIP()
	r := &http.Request{RemoteAddr: "192.0.2.7:1234"}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = key(r)
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
