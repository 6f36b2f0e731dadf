package keyfunc

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// RemoteIP returns a Func whose key is the address of the TCP peer, which cannot be forged.
//
// An IPv6 address counts by its /64, the smallest network that a subscriber has. A subscriber with
// a larger network has more keys, so pair RemoteIP with a wider limit. Behind a proxy all clients
// share the proxy's key: use TrustedProxies there. A peer without an IP address, as on a Unix
// socket, is ErrNoKey.
func RemoteIP() Func { return addressFunc(peer).key(defaultBits) }

// An addressFunc finds the client's address, in the form that parseAddr returns.
type addressFunc func(*http.Request) (netip.Addr, error)

// byAddress returns the key of the package's functions, unless their arguments are at fault.
func byAddress(find addressFunc, err error) (Func, error) {
	if err != nil {
		return nil, err
	}
	return find.key(defaultBits), nil
}

// key returns a Func that counts an IPv6 address by its first bits.
func (find addressFunc) key(bits int) Func {
	return func(r *http.Request) (string, error) {
		addr, err := find(r)
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

// peer finds the address of the TCP peer.
func peer(r *http.Request) (netip.Addr, error) { return addressOf("peer", r.RemoteAddr) }

// addressOf returns the address of somebody, as parseAddr reads it.
func addressOf(whom, s string) (netip.Addr, error) {
	addr, ok := parseAddr(s)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%w: the %s has no IP address", ErrNoKey, whom)
	}
	return addr, nil
}

// maxAddr is longer than any address with brackets, zone and port needs to be.
const maxAddr = 128

// parseAddr reads an address with or without port, brackets and zone. It returns an IPv4 address
// that is mapped or translated into IPv6 as IPv4 and drops the zone, because otherwise
// netip.Prefix.Contains is false for all of these.
func parseAddr(s string) (addr netip.Addr, ok bool) {
	if len(s) > maxAddr {
		return netip.Addr{}, false
	}
	var err error
	inner, bracket := strings.CutPrefix(s, "[")
	switch bare, whole := strings.CutSuffix(inner, "]"); {
	case bracket && whole:
		if addr, err = netip.ParseAddr(bare); !addr.Is6() {
			return netip.Addr{}, false
		}
	case bracket || strings.Count(s, ":") == 1: // IPv6 has at least two
		withPort, fault := netip.ParseAddrPort(s)
		addr, err = withPort.Addr(), fault
	default:
		addr, err = netip.ParseAddr(s)
	}
	return toIPv4(addr.WithZone("")), err == nil
}

// translated holds the IPv4 clients of an IPv6 server (RFC 6052, section 2.1).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// toIPv4 returns the IPv4 address that is mapped or translated into addr, and otherwise addr.
func toIPv4(addr netip.Addr) netip.Addr {
	if translated.Contains(addr) {
		whole := addr.As16()
		return netip.AddrFrom4([4]byte(whole[12:]))
	}
	return addr.Unmap()
}
