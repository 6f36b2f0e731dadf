package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// IPv6Prefix makes the address keys of this package with IPv6 addresses counted by that many bits, 48 to 128; 0
// is 64, as the functions of the same names have it. An IPv4 address always counts whole, also one that is translated into
// 64:ff9b::/96. A subscriber has at least a /64
// and often a /56 or a /48: fewer bits put neighbours of small networks into one key, more give one subscriber more keys
// than Redis can hold. Any other number is an error of every constructor or call. It is immutable.
//
//	client, err := keyfunc.IPv6Prefix(56).TrustedProxies("10.0.0.0/8")
type IPv6Prefix int

// RemoteIP is the package's RemoteIP with this prefix.
func (p IPv6Prefix) RemoteIP() Func { return p.key(peer) }

// Address is the package's Address with this prefix.
func (p IPv6Prefix) Address(read func(*http.Request) string) Func { return p.key(address(read)) }

// Extractor is the package's Extractor with this prefix.
func (p IPv6Prefix) Extractor(extract func(*http.Request) string, names ...string) Func {
	return p.key(extracted(extract, names))
}

// TrustedProxies is the package's TrustedProxies with this prefix.
func (p IPv6Prefix) TrustedProxies(cidrs ...string) (Func, error) {
	trusted, err := parseCIDRs("TrustedProxies", cidrs)
	return p.checked(behind(trusted, xForwardedFor), err)
}

// Forwarded is the package's Forwarded with this prefix.
func (p IPv6Prefix) Forwarded(cidrs ...string) (Func, error) {
	trusted, err := parseCIDRs("Forwarded", cidrs)
	return p.checked(behind(trusted, forwarded), err)
}

// TrustedHops is the package's TrustedHops with this prefix.
func (p IPv6Prefix) TrustedHops(n int) (Func, error) {
	source, err := hops(n)
	return p.checked(source, err)
}

// TrustedHeader is the package's TrustedHeader with this prefix.
func (p IPv6Prefix) TrustedHeader(name string, peers ...string) (Func, error) {
	source, err := told(name, peers)
	return p.checked(source, err)
}

// source finds the address of a request's client, canonical as parseAddr has it.
type source func(*http.Request) (netip.Addr, error)

func (p IPv6Prefix) fault() error {
	if p != 0 && (p < 48 || p > 128) {
		return fmt.Errorf("keyfunc: IPv6Prefix is %d: it must be from 48 to 128, or 0 for 64", int(p))
	}
	return nil
}

func (p IPv6Prefix) key(client source) Func {
	if err := p.fault(); err != nil {
		return fail(err)
	}
	bits := int(p)
	if bits == 0 {
		bits = 64
	}
	return func(r *http.Request) (string, error) {
		addr, err := client(r)
		if err != nil {
			return "", err
		}
		if addr.Is4() {
			return addr.String(), nil
		}
		prefix, _ := addr.Prefix(bits) // fails only for more bits than the address has
		return prefix.String(), nil
	}
}

func (p IPv6Prefix) checked(client source, err error) (Func, error) {
	if err := errors.Join(err, p.fault()); err != nil {
		return nil, err
	}
	return p.key(client), nil
}
