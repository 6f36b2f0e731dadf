package keyfunc

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
)

// Extractor returns a Func whose key is the address that extract finds in the peer's address and
// the headers of a request, such as a framework's own client address. Keys are those of Address.
//
// Extractor calls extract at once with forged requests, so configure extract before. If an
// untrusted peer could choose its address by a common header or by one of these names, Extractor
// returns an error. It ignores empty names. It is wrong if extract believes a header of another
// name. The function extract must not change the request.
//
// It trusts the proxies that extract trusts. If extract returns the address of such a proxy, no
// client is known, and the key is the peer's address, as for TrustedProxies. A string that is not
// an address is ErrNoKey. A nil extract and an invalid header name are errors.
func Extractor(extract func(*http.Request) string, names ...string) (Func, error) {
	read, err := readAddress("Extractor", extract)
	for _, name := range names {
		err = errors.Join(err, faultIf(name != "" && !isToken(name), "Extractor: %q is not a header name", name))
	}
	if err != nil {
		return nil, err
	}
	// believes reports whether a peer can change its address by forged headers.
	believes := func(from netip.Addr, forged http.Header) bool {
		addr, err := read(&http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: "/"}, Host: "example.com", RequestURI: "/",
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: forged, RemoteAddr: netip.AddrPortFrom(from, 6666).String(),
		})
		return err == nil && addr != from
	}
	for _, address := range forgedAddresses {
		forged := forgedHeader(address, names)
		for _, from := range untrustedPeers {
			if believes(from, forged) {
				return nil, errForgeable
			}
		}
	}
	forged := forgedHeader(forgedAddresses[0], names)
	find := func(r *http.Request) (netip.Addr, error) {
		client, err := read(r)
		if err != nil {
			return client, err
		}
		from, ok := parseAddr(r.RemoteAddr)
		if ok && client != from && believes(client, forged) {
			return from, nil
		}
		return client, nil
	}
	return byAddress(find, nil)
}

var errForgeable = errors.New("keyfunc: Extractor: the function believes headers from any peer: " +
	"restrict it to your proxies")

// untrustedPeers have addresses for documentation (RFC 5737, RFC 3849, RFC 9637), which no proxy
// has.
var untrustedPeers = []netip.Addr{
	netip.MustParseAddr("192.0.2.66"),
	netip.MustParseAddr("2001:db8::66"),
	netip.MustParseAddr("3fff::66"),
}

// forgedAddresses are public, private, loopback and IPv6, because an extractor may tell them apart.
var forgedAddresses = []string{"198.51.100.6", "10.6.6.6", "127.0.0.6", "2001:db8:6::6"}

// forgedHeader has the address in every header that commonly carries one, and in those of the
// names.
func forgedHeader(address string, names []string) http.Header {
	h := http.Header{"Forwarded": {"for=" + address}}
	for _, name := range slices.Concat([]string{
		"X-Forwarded-For", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip",
		"Fly-Client-Ip", "Fastly-Client-Ip", "X-Appengine-Remote-Addr", "X-Appengine-User-Ip",
		"X-Azure-Clientip", "X-Envoy-External-Address",
	}, names) {
		if name != "" {
			h.Set(name, address)
		}
	}
	return h
}
