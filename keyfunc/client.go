package keyfunc

import (
	"cmp"
	"errors"
	"net/http"
)

// A Client finds the client's address as RemoteIP, TrustedProxies, Forwarded, TrustedHops,
// TrustedHeader or Address does, and counts IPv6 addresses by another prefix than /64. The key of
// the zero Client is RemoteIP.
//
//	key, err := keyfunc.Client{Proxies: []string{"10.0.0.0/8"}, IPv6Bits: 56}.Key()
type Client struct {
	// Proxies are CIDRs and addresses of the proxies that you trust, or UnixSocket.
	Proxies []string

	// Header is where the Proxies write the client's address. Empty means X-Forwarded-For, which
	// Key reads as TrustedProxies does. It reads Forwarded as the function Forwarded does, and any
	// other header as TrustedHeader does.
	Header string

	// Hops is the number of proxies, as in TrustedHops. It excludes Proxies.
	Hops int

	// Read returns the client's address, as in Address. It excludes Proxies and Hops.
	Read func(*http.Request) string

	// IPv6Bits is the number of bits by which an IPv6 address counts, from 48 to 128. Zero means 64.
	// A subscriber has at least a /64 and often a /56 or a /48. A shorter prefix puts neighbours
	// into one key. A longer one gives a subscriber more keys than Redis can hold. An IPv4 address
	// always counts whole, also one that is translated into 64:ff9b::/96.
	IPv6Bits int
}

// defaultBits is the prefix of the package's functions.
const defaultBits = 64

// Key returns the Func, or an error that names every fault of the Client.
func (c Client) Key() (Func, error) {
	find, err := c.find()
	bits := cmp.Or(c.IPv6Bits, defaultBits)
	err = errors.Join(err, faultIf(bits < 48 || bits > 128, "Client: IPv6Bits is %d, not 0 or from 48 to 128", bits))
	if err != nil {
		return nil, err
	}
	return find.key(bits), nil
}

func (c Client) find() (addressFunc, error) {
	switch {
	case c.Read != nil && (c.Hops != 0 || len(c.Proxies) > 0),
		c.Hops != 0 && len(c.Proxies) > 0:
		return nil, errors.New("keyfunc: Client: Proxies, Hops and Read exclude each other")
	case len(c.Proxies) > 0:
		return c.findBehindProxies()
	case c.Header != "":
		return nil, errors.New("keyfunc: Client: Header needs Proxies")
	case c.Hops != 0:
		return addressAtHop("Client: Hops", c.Hops)
	case c.Read != nil:
		return readAddress("Client: Read", c.Read)
	}
	return peer, nil
}

func (c Client) findBehindProxies() (addressFunc, error) {
	trusted, err := parsePeers("Client: Proxies", c.Proxies)
	switch http.CanonicalHeaderKey(c.Header) {
	case "", xForwardedFor.header:
		return clientBehind(trusted, xForwardedFor), err
	case forwarded.header:
		return clientBehind(trusted, forwarded), err
	}
	err = errors.Join(err, faultIf(!isToken(c.Header), "Client: Header: %q is not a header name", c.Header))
	return addressInHeader(c.Header, trusted), err
}
