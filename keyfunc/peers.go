package keyfunc

import (
	"net/http"
	"net/netip"
	"slices"
)

// UnixSocket names a proxy that connects through a Unix socket, where TrustedProxies, Forwarded,
// TrustedHeader and Client take a CIDR. Such a peer has no address: if its header does not tell the
// client either, the request has ErrNoKey.
const UnixSocket = "unix"

// peers are proxies that are trusted by their addresses, or because they use a Unix socket.
type peers struct {
	prefixes   []netip.Prefix
	unixSocket bool
}

// parsePeers parses CIDRs, addresses and UnixSocket, and returns every fault. Faults begin with
// where.
func parsePeers(where string, names []string) (p peers, err error) {
	cidrs := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == UnixSocket })
	p.unixSocket = len(cidrs) < len(names)
	if len(cidrs) > 0 || !p.unixSocket {
		p.prefixes, err = parseCIDRs(where, cidrs)
	}
	return p, err
}

func (p peers) contain(addr netip.Addr) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(addr) })
}

// find returns the address of the peer and whether the peer is trusted. One on a Unix socket has no
// address.
func (p peers) find(r *http.Request) (addr netip.Addr, trusted bool, err error) {
	if addr, err = peer(r); err != nil {
		return addr, p.unixSocket && onUnixSocket(r), err
	}
	return addr, p.contain(addr), nil
}

// onUnixSocket reports whether the peer uses a Unix socket. The net package names it by its path,
// by "@" and an abstract name, or by "@" alone.
func onUnixSocket(r *http.Request) bool {
	return r.RemoteAddr == "" || r.RemoteAddr[0] == '@' || r.RemoteAddr[0] == '/'
}
