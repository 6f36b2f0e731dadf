package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// Address returns a Func whose key is the address that read returns, for example one that another
// middleware stored in the request's context.
//
// It trusts read, and is wrong if read believes a header that any client can write. Like all
// address keys it counts an IPv6 address by its /64, and every spelling of an address is the same
// key. A string that is not an address is ErrNoKey. A nil read is an error.
func Address(read func(*http.Request) string) (Func, error) {
	return byAddress(readAddress("Address", read))
}

// readAddress finds the address that read returns. Faults begin with where.
func readAddress(where string, read func(*http.Request) string) (addressFunc, error) {
	if read == nil {
		return nil, fmt.Errorf("keyfunc: %s: the function is nil", where)
	}
	return func(r *http.Request) (netip.Addr, error) { return addressOf("client", read(r)) }, nil
}

// parseCIDRs parses CIDRs and single addresses, and returns every fault. Faults begin with where.
func parseCIDRs(where string, cidrs []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	faults := faultIf(len(cidrs) == 0, "%s: no CIDR is given", where)
	for _, c := range cidrs {
		p, err := parseCIDR(c)
		faults = errors.Join(faults, faultIf(err != nil, "%s: %q is not a CIDR or an address", where, c))
		prefixes = append(prefixes, p)
	}
	return prefixes, faults
}

// parseCIDR treats IPv4 inside IPv6 as parseAddr does.
func parseCIDR(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, errors.New("the address has a zone")
		}
		addr = toIPv4(addr)
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, err
	}
	if addr := toIPv4(p.Addr()); addr != p.Addr() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("the prefix is wider than all of IPv4")
		}
		p = netip.PrefixFrom(addr, p.Bits()-96)
	}
	return p.Masked(), nil
}
