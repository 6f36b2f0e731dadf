package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// InNetworks returns a func that reports whether the client's address lies in one of the networks,
// for nethttp.Config.Skip and Deny. Key is an address key, such as RemoteIP. A request without an
// address lies in none.
//
// The key of an IPv6 address is its /64, or the prefix of a Client. A network that is narrower than
// that holds no client: use the key of Client{IPv6Bits: 128} for single hosts. A string that is
// neither a CIDR nor an address is an error.
func InNetworks(key Func, cidrs ...string) (func(*http.Request) bool, error) {
	networks, err := parseCIDRs("InNetworks", cidrs)
	err = errors.Join(faultIf(key == nil, "InNetworks: the key is nil"), err)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) bool {
		k, err := key(r)
		if err != nil {
			return false
		}
		client, err := parseCIDR(k)
		if err != nil {
			return false
		}
		return slices.ContainsFunc(networks, func(n netip.Prefix) bool {
			return n.Bits() <= client.Bits() && n.Contains(client.Addr())
		})
	}, nil
}

// OneOf returns a func that reports whether the key of a request is one of these, for
// nethttp.Config.Skip and Deny. A request without a key is none of them. The keys are as the Func
// derives them: Header, Cookie, Query, BearerToken and Name hash theirs. No keys, and an empty one,
// are errors.
func OneOf(key Func, keys ...string) (func(*http.Request) bool, error) {
	switch {
	case key == nil:
		return nil, errors.New("keyfunc: OneOf: the key is nil")
	case len(keys) == 0:
		return nil, errors.New("keyfunc: OneOf: no key is given")
	case slices.Contains(keys, ""):
		return nil, fmt.Errorf("keyfunc: OneOf: key %d is empty", slices.Index(keys, ""))
	}
	set := make(map[string]struct{}, len(keys))
	for _, k := range keys {
		set[k] = struct{}{}
	}
	return func(r *http.Request) bool {
		k, err := key(r)
		_, found := set[k]
		return err == nil && found
	}, nil
}
