package keyfunc_test

import (
	"net/http"
	"testing"

	"github.com/headgate/headgate/keyfunc"
)

func TestIPv6Bits(t *testing.T) {
	const (
		proxy  = "2001:db8:aaaa::/48"
		client = "2001:db8:1:2:3:4:5:6"
	)
	proxied := request(func(r *http.Request) {
		r.RemoteAddr = "[2001:db8:aaaa:bbbb:cccc::1]:1"
		r.Header.Set("X-Forwarded-For", client)
		r.Header.Set("Forwarded", `for="[`+client+`]"`)
		r.Header.Set("X-Real-Ip", client)
	})
	for _, c := range []struct {
		name         string
		bits         int
		client, peer string
	}{
		{"zero", 0, "2001:db8:1:2::/64", "2001:db8:aaaa:bbbb::/64"},
		{"48", 48, "2001:db8:1::/48", "2001:db8:aaaa::/48"},
		{"56", 56, "2001:db8:1::/56", "2001:db8:aaaa:bb00::/56"},
		{"64", 64, "2001:db8:1:2::/64", "2001:db8:aaaa:bbbb::/64"},
		{"128", 128, "2001:db8:1:2:3:4:5:6/128", "2001:db8:aaaa:bbbb:cccc::1/128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			peer := keyfunc.Must(keyfunc.Client{IPv6Bits: c.bits}.Key())
			expect(t, peer, proxied, c.peer)
			expect(t, peer, request(nil), "192.0.2.7")
			read := func(*http.Request) string { return client }
			for _, from := range []keyfunc.Client{
				{Proxies: []string{proxy}},
				{Proxies: []string{proxy}, Header: "x-forwarded-for"},
				{Proxies: []string{proxy}, Header: "forwarded"},
				{Proxies: []string{proxy}, Header: "x-real-ip"},
				{Hops: 1},
				{Read: read},
			} {
				from.IPv6Bits = c.bits
				expect(t, keyfunc.Must(from.Key()), proxied, c.client)
			}
		})
	}
}

// A Client reads lists as TrustedProxies and Forwarded do, and any other header as TrustedHeader.
func TestClientReadsEachHeaderByItsRules(t *testing.T) {
	const proxies = "192.0.2.0/24"
	r := request(func(r *http.Request) {
		r.Header.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.9")
		r.Header.Set("Forwarded", "for=198.51.100.2, for=192.0.2.9")
		r.Header["X-Real-Ip"] = []string{"198.51.100.4", "198.51.100.3"}
	})
	for _, c := range []struct{ header, want string }{
		{"", "198.51.100.1"},
		{"X-Forwarded-For", "198.51.100.1"},
		{"Forwarded", "198.51.100.2"},
		{"X-Real-Ip", "198.51.100.3"},
	} {
		client := keyfunc.Client{Proxies: []string{proxies}, Header: c.header}
		expect(t, keyfunc.Must(client.Key()), r, c.want)
	}
	unlisted := keyfunc.Client{Proxies: []string{"203.0.113.0/24"}}
	expect(t, keyfunc.Must(unlisted.Key()), r, "192.0.2.7")
}
