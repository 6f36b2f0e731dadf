package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
)

// Address is the address that read finds, such as one that a middleware in front has put into the request's context. It
// trusts read, and is wrong where that believes a header which anybody can write. An IPv6 address counts by its /64; any
// spelling of an address is the same key. What is not an address is ErrNoKey.
func Address(read func(*http.Request) string) Func { return IPv6Prefix(64).Address(read) }

// Extractor is the address that extract finds by itself in the peer and the headers of a request, such as a framework's
// own client address. It tries extract out at its first request: if a stranger could choose his address by a common
// header, every call fails with an error that is not ErrNoKey. It trusts the proxies that extract trusts, and is wrong where
// that reads a header of another name from anybody. Keys are those of Address.
func Extractor(extract func(*http.Request) string) Func { return IPv6Prefix(64).Extractor(extract) }

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

func extracted(extract func(*http.Request) string) source {
	read := address(extract)
	if extract == nil {
		return read
	}
	tried := sync.OnceValue(func() error {
		for _, forged := range []string{"198.51.100.6", "10.6.6.6", "127.0.0.6"} {
			if addr, err := read(stranger(forged)); err == nil && addr != nobody {
				return errCredulous
			}
		}
		return nil
	})
	return func(r *http.Request) (netip.Addr, error) {
		if err := tried(); err != nil {
			return netip.Addr{}, err
		}
		return read(r)
	}
}

// nobody has an address of TEST-NET-1 (RFC 5737), which is no proxy's.
var nobody = netip.AddrFrom4([4]byte{192, 0, 2, 66})

// stranger is nobody's request with a forged address in every header that is in use for it.
func stranger(forged string) *http.Request {
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, Host: "example.com", RequestURI: "/",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Forwarded": {"for=" + forged}}, RemoteAddr: nobody.String() + ":6666",
	}
	for _, name := range []string{
		"X-Forwarded-For", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Fly-Client-Ip",
		"Fastly-Client-Ip", "X-Appengine-Remote-Addr", "X-Appengine-User-Ip", "X-Azure-Clientip", "X-Envoy-External-Address",
	} {
		r.Header[name] = []string{forged}
	}
	return r
}
