package keyfunc

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// RemoteIP is the address of the TCP peer, which nobody can forge. An IPv6 address counts by its /64, the least that one
// subscriber has; an owner of more has more keys, so pair it with a wider limit. Behind a proxy the peer is the proxy, and
// all clients share its key: use TrustedProxies there. Peers without an address, as on a Unix socket, are ErrNoKey.
func RemoteIP() Func { return IPv6Prefix(64).RemoteIP() }

func peer(r *http.Request) (netip.Addr, error) {
	addr, ok := parseAddr(r.RemoteAddr)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%w: the peer has no IP address", ErrNoKey)
	}
	return addr, nil
}

// translated is where IPv4 clients of an IPv6 server are (RFC 6052, section 2.1): one prefix for all of them.
var translated = netip.MustParsePrefix("64:ff9b::/96")

// parseAddr reads an address with or without port, brackets and zone. An IPv4 address mapped or translated into IPv6 is
// returned as IPv4 and a zone is dropped, because netip.Prefix.Contains is false for all of these.
func parseAddr(s string) (netip.Addr, bool) {
	if len(s) > maxAddr {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(s)
	if err != nil {
		if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
			addr, err = netip.ParseAddr(inner[:len(inner)-1])
			if err != nil || !addr.Is6() {
				return netip.Addr{}, false
			}
		} else {
			port, err := netip.ParseAddrPort(s)
			if err != nil {
				return netip.Addr{}, false
			}
			addr = port.Addr()
		}
	}
	return fold(addr.WithZone("")), true
}

// fold is an IPv4 address as such.
func fold(addr netip.Addr) netip.Addr {
	if translated.Contains(addr) {
		whole := addr.As16()
		return netip.AddrFrom4([4]byte(whole[12:]))
	}
	return addr.Unmap()
}

// maxAddr is longer than any address with brackets, zone and port is worth reading.
const maxAddr = 128
