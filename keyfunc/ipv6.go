package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// IPv6Prefix has the constructors of address keys for another prefix length than /64. Its value is
// the number of bits by which an IPv6 address counts, from 48 to 128. Zero means 64. Every
// constructor returns an error for any other number.
//
// A subscriber has at least a /64 and often a /56 or a /48. A shorter prefix puts neighbours into
// one key. A longer one gives a subscriber more keys than Redis can hold. An IPv4 address always
// counts whole, also one that is translated into 64:ff9b::/96.
//
//	client, err := keyfunc.IPv6Prefix(56).TrustedProxies("10.0.0.0/8")
type IPv6Prefix int

// defaultPrefix is the prefix of the package's functions.
const defaultPrefix IPv6Prefix = 64

// RemoteIP is the package's RemoteIP with this prefix.
func (p IPv6Prefix) RemoteIP() (Func, error) { return p.check(peer, nil) }

// Address is the package's Address with this prefix.
func (p IPv6Prefix) Address(read func(*http.Request) string) (Func, error) {
	return p.check(readAddress("Address", read))
}

// Extractor is the package's Extractor with this prefix.
func (p IPv6Prefix) Extractor(extract func(*http.Request) string, names ...string) (Func, error) {
	return p.check(extractedAddress(extract, names))
}

// TrustedProxies is the package's TrustedProxies with this prefix.
func (p IPv6Prefix) TrustedProxies(cidrs ...string) (Func, error) {
	trusted, err := parseCIDRs("TrustedProxies", cidrs)
	return p.check(clientBehind(trusted, xForwardedFor), err)
}

// Forwarded is the package's Forwarded with this prefix.
func (p IPv6Prefix) Forwarded(cidrs ...string) (Func, error) {
	trusted, err := parseCIDRs("Forwarded", cidrs)
	return p.check(clientBehind(trusted, forwarded), err)
}

// TrustedHops is the package's TrustedHops with this prefix.
func (p IPv6Prefix) TrustedHops(n int) (Func, error) { return p.check(addressAtHop(n)) }

// TrustedHeader is the package's TrustedHeader with this prefix.
func (p IPv6Prefix) TrustedHeader(name string, peers ...string) (Func, error) {
	return p.check(addressInHeader(name, peers))
}

// An addressFunc finds the client's address, in the form that parseAddr returns.
type addressFunc func(*http.Request) (netip.Addr, error)

// check returns the Func unless the address constructor or the prefix is at fault.
func (p IPv6Prefix) check(find addressFunc, err error) (Func, error) {
	if p != 0 && (p < 48 || p > 128) {
		fault := fmt.Errorf("keyfunc: IPv6Prefix is %d, not 0 or from 48 to 128", int(p))
		err = errors.Join(err, fault)
	}
	if err != nil {
		return nil, err
	}
	return p.key(find), nil
}

func (p IPv6Prefix) key(find addressFunc) Func {
	if p == 0 {
		p = defaultPrefix
	}
	return func(r *http.Request) (string, error) {
		addr, err := find(r)
		if err != nil {
			return "", err
		}
		if addr.Is4() {
			return addr.String(), nil
		}
		prefix, _ := addr.Prefix(int(p)) // fails only for more bits than the address has
		return prefix.String(), nil
	}
}
