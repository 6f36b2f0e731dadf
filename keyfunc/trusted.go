package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// TrustedHops is the address of the client n proxies away, 1 to 50: the n-th address of X-Forwarded-For from the right, over
// all its lines, where the nearest proxy has written the first. It is for proxies whose addresses change, as those of a
// cloud's balancer. It trusts every peer, so it is wrong where anybody reaches this server past the proxies, who then
// writes the header himself: close the network to all others. It is also wrong where the number of proxies differs
// from request to request.
//
// The key is the peer's address where the header is shorter than that or has something else in the place, and where
// the place is beyond 4 KiB.
func TrustedHops(n int) (Func, error) { return IPv6Prefix(64).TrustedHops(n) }

func hops(n int) (source, error) {
	if n < 1 || n > maxHops {
		return nil, fmt.Errorf("keyfunc: TrustedHops: %d proxies: it must be from 1 to %d", n, maxHops)
	}
	return func(r *http.Request) (netip.Addr, error) {
		addr, err := peer(r)
		if err != nil {
			return addr, err
		}
		place := n
		xForwardedFor.walk(r.Header.Values(xForwardedFor.header), func(element string) (more bool) {
			if place--; place > 0 {
				return true
			}
			if client, ok := xForwardedFor.parse(element); ok {
				addr = client
			}
			return false
		})
		return addr, nil
	}, nil
}

// TrustedHeader is the address in a header that a proxy of yours sets, such as X-Real-Ip or CF-Connecting-IP, read only of a
// request whose peer is one of those given, each as a CIDR or an address. It trusts these peers to overwrite what their clients
// send, and is wrong where they do not: many products pass True-Client-IP and X-Client-IP through. Of several lines the
// last is read, which the nearest proxy has added. The key is the peer's address where the peer is another one, and
// where the header is missing or not an address. All faults are returned at once.
func TrustedHeader(name string, peers ...string) (Func, error) {
	return IPv6Prefix(64).TrustedHeader(name, peers...)
}

func told(name string, peers []string) (source, error) {
	trusted, err := parseCIDRs("TrustedHeader", peers)
	if !token(name) {
		err = errors.Join(fmt.Errorf("keyfunc: TrustedHeader: %q is not a header's name", name), err)
	}
	if err != nil {
		return nil, err
	}
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (netip.Addr, error) {
		addr, err := peer(r)
		if err != nil || !contains(trusted, addr) {
			return addr, err
		}
		if values := r.Header[name]; len(values) > 0 {
			if client, ok := xForwardedFor.parse(values[len(values)-1]); ok {
				addr = client
			}
		}
		return addr, nil
	}, nil
}
