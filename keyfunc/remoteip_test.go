package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestRemoteIPAllocations(t *testing.T) {
	key := keyfunc.RemoteIP()
	r := request(func(r *http.Request) { r.RemoteAddr = "192.0.2.7:1234" })
	if n := testing.AllocsPerRun(100, func() { _, _ = key(r) }); n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

func TestIPv6SharesAKeyByItsPrefix(t *testing.T) {
	of := func(peer string) string {
		key, err := keyfunc.RemoteIP()(request(func(r *http.Request) { r.RemoteAddr = peer }))
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	own := of("[2001:db8:1:2::1]:1")
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
			if got := of(c.peer); (got == own) != c.same {
				t.Errorf("%q beside %q", got, own)
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
