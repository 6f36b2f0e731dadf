// Package faultproxy is a TCP proxy that breaks its connections as networks do.
//
//	p, err := faultproxy.Listen("127.0.0.1:6379")
//	client := redis.NewClient(&redis.Options{Addr: p.Addr})
//	p.Set(faultproxy.Fault{ResetReplies: 3}) // Redis does what it is asked, and a third is not told
//	p.Set(faultproxy.Fault{})                // heals
//
// A [Network] is all proxies of one process: its Dial goes through a proxy for each address, so that
// clients of a cluster or of Sentinel keep the addresses that their servers announce.
package faultproxy

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is what a Proxy does to its connections. The zero value is a sound link.
type Fault struct {
	Delay        time.Duration // added to what is sent, each way
	Refuse       bool          // new connections are reset
	Mute         bool          // new connections are accepted, and nothing passes on them for good
	Hold         bool          // nothing passes; what was sent arrives when the fault ends
	ResetReplies int           // after this number of replies, the connection is reset in place of the reply
	CutReplies   int           // after this number of replies, half passes and the connection falls silent
	Answer       string        // what each command is answered in place of the server, such as "-ERR gone\r\n"
}

// Proxy forwards connections to one address. Its methods are safe for concurrent use.
type Proxy struct {
	Addr string // to connect to

	upstream string
	listener net.Listener
	state    atomic.Pointer[state]
	replies  atomic.Int64
	tasks    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	pairs  map[*pair]struct{}
}

// state is a fault with what tells its end.
type state struct {
	Fault
	ended chan struct{}
}

// Listen returns a sound proxy to an address, on a free port of the loopback interface.
func Listen(upstream string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		Addr: listener.Addr().String(), upstream: upstream, listener: listener,
		pairs: make(map[*pair]struct{}),
	}
	p.state.Store(&state{ended: make(chan struct{})})
	p.tasks.Go(p.accept)
	return p, nil
}

// Set replaces the fault.
func (p *Proxy) Set(f Fault) {
	old := p.state.Swap(&state{Fault: f, ended: make(chan struct{})})
	close(old.ended)
}

// Freeze makes every open connection half-open: it swallows what either end sends, for good. New
// connections work. Freeze returns how many it froze.
func (p *Proxy) Freeze() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.frozen.Store(true)
	}
	return len(p.pairs)
}

// Cut resets every open connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.pairs {
		c.close(true)
	}
}

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pairs)
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.tasks.Wait()
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() { p.open(near) })
	}
}

func (p *Proxy) open(near net.Conn) {
	fault := p.state.Load().Fault
	if fault.Refuse {
		reset(near)
		return
	}
	far, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
	if err != nil {
		reset(near)
		return
	}
	c := &pair{near: near, far: far, done: make(chan struct{})}
	c.frozen.Store(fault.Mute)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.close(true)
		return
	}
	p.pairs[c] = struct{}{}
	p.tasks.Go(func() { p.carry(c, far, near, false) })
	p.tasks.Go(func() { p.carry(c, near, far, true) })
}
