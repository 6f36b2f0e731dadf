package keyfunc

import (
	"net/http"
	"net/netip"
	"strings"
)

// TrustedProxies returns a Func whose key is the address of the client behind your proxies. Each
// proxy is a CIDR, an address or UnixSocket.
//
// It reads X-Forwarded-For only if the peer is such a proxy. It walks all lines of the header from
// right to left past the trusted addresses, and the first other address is the client. It ignores
// everything to the left of that, which the client may have written itself.
//
// If the header does not tell the client, the key is the peer's address, as for RemoteIP: if the
// peer is not trusted, if all addresses are, if the walk meets something that is not an address, or
// after 50 hops or 4 KiB. No header can change the peer's address, so a client cannot choose its
// key by breaking the header.
//
// TrustedProxies is wrong if a proxy passes the header on without adding to it, and if untrusted
// clients share the proxies' addresses. Invalid CIDRs are errors, and so is none.
func TrustedProxies(cidrs ...string) (Func, error) {
	trusted, err := parsePeers("TrustedProxies", cidrs)
	return byAddress(clientBehind(trusted, xForwardedFor), err)
}

// clientBehind finds the rightmost address that is not trusted. If there is none, it is the peer's.
func clientBehind(proxies peers, c chain) addressFunc {
	return func(r *http.Request) (netip.Addr, error) {
		client, trusted, err := proxies.find(r)
		if !trusted {
			return client, err
		}
		c.walk(r.Header.Values(c.header), func(element string) (more bool) {
			hop, ok := c.parse(element)
			if !ok {
				return false
			}
			if proxies.contain(hop) {
				return true
			}
			client, err = hop, nil
			return false
		})
		return client, err
	}
}

// A chain is a header to whose end each proxy adds the address of its peer.
type chain struct {
	header    string
	lastComma func(string) int // index of the comma before the last element, or -1
	parse     func(element string) (netip.Addr, bool)
}

var xForwardedFor = chain{
	header:    "X-Forwarded-For",
	lastComma: func(s string) int { return strings.LastIndexByte(s, ',') },
	parse:     func(s string) (netip.Addr, bool) { return parseAddr(strings.Trim(s, " \t")) },
}

const (
	maxHops       = 50
	maxChainBytes = 4096 // counted from the end of the header
)

// walk visits the elements from right to left as long as visit returns true. It reads each line
// from its end, so that a long header costs no more than the bounds allow.
func (c chain) walk(lines []string, visit func(element string) (more bool)) {
	hops, left := maxHops, maxChainBytes
	for i := len(lines) - 1; i >= 0; i-- {
		line, more := lines[i], true
		for more {
			window := line[max(0, len(line)-left):]
			comma := c.lastComma(window)
			element := window[comma+1:]
			left -= len(element) + 1
			hops--
			if hops < 0 || left < 0 || !visit(element) {
				return
			}
			if more = comma >= 0; more {
				line = line[:len(line)-len(element)-1]
			}
		}
	}
}
