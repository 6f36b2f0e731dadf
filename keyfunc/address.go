package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
)

// Address is the address that read finds, such as one that a middleware in front has put into the request's context. It
// trusts read, and is wrong where that believes a header which anybody can write. An IPv6 address counts by its /64; any
// spelling of an address is the same key. What is not an address is ErrNoKey.
func Address(read func(*http.Request) string) Func { return IPv6Prefix(64).Address(read) }

// Extractor is the address that extract finds by itself in the peer and the headers of a request, such as a framework's
// own client address. It tries extract out at its first request: if a stranger could choose his address by a common
// header, or by one of these names, every call fails with an error that is not ErrNoKey. It trusts the proxies that extract trusts; an address that is
// one of them tells of no client, and the key is the peer's, as for TrustedProxies. It is wrong where extract reads a header of
// another name from anybody. extract must not change the request. Keys are those of Address.
func Extractor(extract func(*http.Request) string, names ...string) Func {
	return IPv6Prefix(64).Extractor(extract, names...)
}

func address(read func(*http.Request) string) source {
	if read == nil {
		return func(*http.Request) (netip.Addr, error) { return netip.Addr{}, errNil }
	}
	return func(r *http.Request) (netip.Addr, error) {
		addr, ok := parseAddr(read(r))
		if !ok {
			return netip.Addr{}, fmt.Errorf("%w: the client's address is none", ErrNoKey)
		}
		return addr, nil
	}
}

var errCredulous = errors.New("keyfunc: Extractor: it believes anybody's headers: name the proxies that it may believe")

func extracted(extract func(*http.Request) string, names []string) source {
	read := address(extract)
	forgeries := []http.Header{forgery("198.51.100.6", names), forgery("10.6.6.6", names), forgery("127.0.0.6", names), forgery("2001:db8:6::6", names)}
	if extract == nil {
		return read
	}
	believes := func(from netip.Addr, forged http.Header) bool {
		addr, err := read(&http.Request{
			Method: http.MethodGet, URL: &url.URL{Path: "/"}, Host: "example.com", RequestURI: "/",
			Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: forged, RemoteAddr: netip.AddrPortFrom(from, 6666).String(),
		})
		return err == nil && addr != from
	}
	tried := sync.OnceValue(func() error {
		for _, h := range forgeries {
			if slices.ContainsFunc(strangers, func(a netip.Addr) bool { return believes(a, h) }) {
				return errCredulous
			}
		}
		return nil
	})
	return func(r *http.Request) (netip.Addr, error) {
		if err := tried(); err != nil {
			return netip.Addr{}, err
		}
		client, err := read(r)
		if from, ok := parseAddr(r.RemoteAddr); err == nil && ok && client != from && believes(client, forgeries[0]) {
			client = from
		}
		return client, err
	}
}

// strangers have addresses for documentation (RFC 5737, RFC 3849, RFC 9637), which are no proxy's.
var strangers = []netip.Addr{netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("2001:db8::66"), netip.MustParseAddr("3fff::66")}

// forgery is headers with a forged address in each that is in use for it, and in those of the names.
func forgery(forged string, names []string) http.Header {
	h := http.Header{"Forwarded": {"for=" + forged}}
	for _, name := range slices.Concat([]string{
		"X-Forwarded-For", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Fly-Client-Ip",
		"Fastly-Client-Ip", "X-Appengine-Remote-Addr", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Envoy-External-Address",
	}, names) {
		if name != "" {
			h.Set(name, forged)
		}
	}
	return h
}
