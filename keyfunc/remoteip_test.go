package keyfunc_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestRemoteIP(t *testing.T) {
	from := func(peer string) func(*http.Request) { return by(peer, "X-Forwarded-For") }
	expectAll(t, keyfunc.RemoteIP(),
		row{"address and port", from("192.0.2.7:1234"), "192.0.2.7"},
		row{"bare address", from("192.0.2.7"), "192.0.2.7"},
		row{"IPv6 and port", from("[2001:db8:1:2:3::4]:1234"), "2001:db8:1:2::/64"},
		row{"bare IPv6", from("2001:db8:1:2:3::4"), "2001:db8:1:2::/64"},
		row{"IPv6 in brackets", from("[2001:db8:1:2:3::4]"), "2001:db8:1:2::/64"},
		row{"another address of the same /64", from("[2001:db8:1:2:ffff::]:1"), "2001:db8:1:2::/64"},
		row{"last address of the /64", from("[2001:db8:1:2:ffff:ffff:ffff:ffff]:2"), "2001:db8:1:2::/64"},
		row{"next /64", from("[2001:db8:1:3::1]:1"), "2001:db8:1:3::/64"},
		row{"zone", from("[fe80::1%eth0]:1234"), "fe80::/64"},
		row{"mapped IPv4", from("[::ffff:192.0.2.7]:1234"), "192.0.2.7"},
		row{"translated IPv4", from("[64:ff9b::c000:207]:1234"), "192.0.2.7"},
		row{"another translation prefix", from("[64:ff9b:1::c000:207]:1234"), "64:ff9b:1::/64"},
		row{"Unix socket", from("@"), noKey},
		row{"empty", from(""), noKey},
		row{"host name", from("example.com:80"), noKey},
		row{"IPv4 in brackets", from("[192.0.2.7]"), noKey},
		row{"1 MiB", from(strings.Repeat("1", 1<<20)), noKey},
	)
}

func TestRemoteIPAllocations(t *testing.T) {
	key := keyfunc.RemoteIP()
	r := request(func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1234" })
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
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
