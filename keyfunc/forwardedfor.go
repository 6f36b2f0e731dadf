package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// TrustedProxies is the address of the client behind proxies of yours, each given as a CIDR or an address. It
// reads X-Forwarded-For, but only of a request whose peer is such a proxy: from right to left over all lines of the
// header, past the trusted addresses, and the first other one is the client. What stands left of that is
// the client's own invention and is not read.
//
// The key is the peer's address, as for RemoteIP, where the header cannot tell: if the peer is not trusted, if all its
// addresses are, if what is reached is not an address, or after 50 hops or 4 KiB. Nothing written into the header moves the
// peer's address, so nobody chooses his key by breaking the header. It is wrong where a
// proxy of yours passes the header on without adding to it, and where untrusted clients share the proxies' addresses.
//
// All faulty CIDRs are returned at once; none at all is an error too.
func TrustedProxies(cidrs ...string) (Func, error) { return IPv6Prefix(64).TrustedProxies(cidrs...) }

func parseCIDRs(constructor string, cidrs []string) ([]netip.Prefix, error) {
	var (
		trusted []netip.Prefix
		errs    []error
	)
	if len(cidrs) == 0 {
		errs = append(errs, fmt.Errorf("keyfunc: %s needs at least one CIDR", constructor))
	}
	for _, c := range cidrs {
		p, err := parseCIDR(c)
		if err != nil {
			errs = append(errs, fmt.Errorf("keyfunc: %s: %q is not a CIDR or an address", constructor, c))
		}
		trusted = append(trusted, p)
	}
	return trusted, errors.Join(errs...)
}

// parseCIDR folds IPv4 mapped or translated into IPv6, as parseAddr does with addresses.
func parseCIDR(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		addr, err := netip.ParseAddr(s)
		if err != nil || addr.Zone() != "" {
			return netip.Prefix{}, errors.New("no address")
		}
		addr = fold(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	if addr := fold(p.Addr()); addr != p.Addr() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("wider than all of IPv4")
		}
		p = netip.PrefixFrom(addr, p.Bits()-96)
	}
	return p.Masked(), nil
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// chain is a header to whose end each proxy adds its peer.
type chain struct {
	header    string
	lastComma func(string) int // where the last element's comma is, -1 if it is the only one
	parse     func(element string) (netip.Addr, bool)
}

var xForwardedFor = chain{
	header:    "X-Forwarded-For",
	lastComma: func(s string) int { return strings.LastIndexByte(s, ',') },
	parse:     func(s string) (netip.Addr, bool) { return parseAddr(strings.Trim(s, " \t")) },
}

// behind is the rightmost address that is not trusted, and else the peer.
func behind(trusted []netip.Prefix, c chain) source {
	return func(r *http.Request) (netip.Addr, error) {
		addr, err := peer(r)
		if err != nil || !contains(trusted, addr) {
			return addr, err
		}
		client := addr
		c.walk(r.Header.Values(c.header), func(element string) (more bool) {
			hop, ok := c.parse(element)
			if ok && !contains(trusted, hop) {
				client = hop
			}
			return ok && client == addr
		})
		return client, nil
	}
}

const (
	maxHops  = 50
	maxBytes = 4096 // of the header, from its end
)

// walk goes from right to left while visit asks for more. It reads the lines from their end, so that a long header costs no
// more than its bounds.
func (c chain) walk(lines []string, visit func(element string) (more bool)) {
	hops, left := maxHops, maxBytes
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
