package faultproxy

import (
	"context"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Network is the links of one process to its servers: a Proxy for each address that it dials. The
// zero value is ready to use.
type Network struct {
	mu     sync.Mutex
	links  map[string]*Proxy
	faults map[string]Fault // of addresses that were set before they were dialled
}

// Dial connects through the Proxy of an address. Give it to a client as its Dialer.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p, err := n.Link(addr)
	if err != nil {
		return nil, err
	}
	if p.state.Load().Refuse { // as the kernel says it, and a proxy cannot
		err := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return new(net.Dialer).DialContext(ctx, network, p.Addr)
}

// Link returns the Proxy of an address.
func (n *Network) Link(addr string) (*Proxy, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.links[addr]; p != nil {
		return p, nil
	}
	p, err := Listen(addr)
	if err != nil {
		return nil, err
	}
	if n.links == nil {
		n.links = make(map[string]*Proxy)
	}
	n.links[addr] = p
	p.Set(n.faults[addr])
	return p, nil
}

// Set replaces the fault of the links to some addresses.
func (n *Network) Set(f Fault, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.faults == nil {
		n.faults = make(map[string]Fault)
	}
	for _, addr := range addrs {
		n.faults[addr] = f
		if p := n.links[addr]; p != nil {
			p.Set(f)
		}
	}
}

// Links returns all proxies.
func (n *Network) Links() []*Proxy {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.links))
}

// Close ends all links.
func (n *Network) Close() {
	for _, p := range n.Links() {
		p.Close()
	}
}
