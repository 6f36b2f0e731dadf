package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// TrustedHops returns a Func whose key is the address of the client that is n proxies away, 1 to
// 50: the n-th address of X-Forwarded-For from the right, over all its lines. The nearest proxy has
// written the first. Use it if the proxies' addresses change, as those of a cloud load balancer do.
//
// It trusts every peer, also one on a Unix socket. It is wrong if a client can reach this server
// without the proxies, because then the client writes the header: close the network to all other
// peers. It is also wrong if the number of proxies differs between requests.
//
// If the header has fewer addresses, has something else in that place, or has the place beyond
// 4 KiB, the key is the peer's address. Any other n is an error.
func TrustedHops(n int) (Func, error) { return byAddress(addressAtHop("TrustedHops: n", n)) }

// addressAtHop finds the n-th address from the right. Its fault begins with where.
func addressAtHop(where string, n int) (addressFunc, error) {
	if n < 1 || n > maxHops {
		return nil, fmt.Errorf("keyfunc: %s is %d, not from 1 to %d", where, n, maxHops)
	}
	return func(r *http.Request) (netip.Addr, error) {
		addr, err := peer(r)
		left := n
		xForwardedFor.walk(r.Header.Values(xForwardedFor.header), func(element string) (more bool) {
			if left--; left > 0 {
				return true
			}
			if client, ok := xForwardedFor.parse(element); ok {
				addr, err = client, nil
			}
			return false
		})
		return addr, err
	}, nil
}

// TrustedHeader returns a Func whose key is the address in a header that your proxy sets, such as
// X-Real-Ip or CF-Connecting-IP. It reads the header only if the peer is one of peers, each a CIDR,
// an address or UnixSocket.
//
// It trusts these peers to overwrite what clients send, and is wrong if they do not: many products
// pass True-Client-IP and X-Client-IP through. Of several lines it reads the last, which the
// nearest proxy has added. If the peer is another one, or the header is missing or not an address,
// the key is the peer's address. An invalid header name and invalid CIDRs are errors, and so are no
// peers.
func TrustedHeader(name string, peers ...string) (Func, error) {
	trusted, err := parsePeers("TrustedHeader", peers)
	err = errors.Join(faultIf(!isToken(name), "TrustedHeader: %q is not a header name", name), err)
	return byAddress(addressInHeader(name, trusted), err)
}

// addressInHeader finds the address that a trusted peer has written into a header of its own.
func addressInHeader(name string, proxies peers) addressFunc {
	name = http.CanonicalHeaderKey(name)
	return func(r *http.Request) (netip.Addr, error) {
		addr, trusted, err := proxies.find(r)
		if !trusted {
			return addr, err
		}
		if values := r.Header[name]; len(values) > 0 {
			if client, ok := xForwardedFor.parse(values[len(values)-1]); ok {
				addr, err = client, nil
			}
		}
		return addr, err
	}
}
