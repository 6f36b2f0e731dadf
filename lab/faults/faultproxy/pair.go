package faultproxy

import (
	"bytes"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// pair is one connection through a Proxy.
type pair struct {
	near, far net.Conn
	frozen    atomic.Bool
	done      chan struct{}
	once      sync.Once
}

// commandHead begins a command.
var commandHead = regexp.MustCompile(`(?:^|\r\n)\*\d+\r\n\$`)

// packet is what one read returned.
type packet struct {
	due  time.Time
	data []byte
}

func (c *pair) close(hard bool) {
	c.once.Do(func() {
		close(c.done)
		if hard {
			reset(c.near)
		}
		_ = c.near.Close()
		_ = c.far.Close()
	})
}

// reset closes a connection so that its other end reads a reset.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// carry reads what one end sends, and has it written to the other.
func (p *Proxy) carry(c *pair, to, from net.Conn, reply bool) {
	line := make(chan packet, 1024)
	p.tasks.Go(func() {
		defer p.forget(c)
		for m := range line {
			if !p.deliver(c, to, m, reply) {
				return
			}
		}
	})
	defer close(line)
	for {
		data := make([]byte, 16<<10)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		select {
		case line <- packet{time.Now().Add(p.state.Load().Delay), data[:n]}:
		case <-c.done:
			return
		}
	}
}

// deliver writes a packet when the link lets it pass. It returns whether the connection goes on.
func (p *Proxy) deliver(c *pair, to net.Conn, m packet, reply bool) bool {
	if wait := time.Until(m.due); wait > 0 {
		select {
		case <-time.After(wait):
		case <-c.done:
			return false
		}
	}
	s := p.state.Load()
	for s.Hold {
		select {
		case <-s.ended:
		case <-c.done:
			return false
		}
		s = p.state.Load()
	}
	if c.frozen.Load() {
		return true
	}
	if s.Answer != "" && !reply {
		_, err := c.near.Write(bytes.Repeat([]byte(s.Answer), len(commandHead.FindAll(m.data, -1))))
		return err == nil
	}
	if reply && p.strikes(s.ResetReplies) {
		c.close(true)
		return false
	}
	if reply && p.strikes(s.CutReplies) {
		c.frozen.Store(true)
		m.data = m.data[:len(m.data)/2]
	}
	_, err := to.Write(m.data)
	return err == nil
}

// strikes reports whether this reply is the last of every replies, which a fault hits.
func (p *Proxy) strikes(every int) bool {
	return every > 0 && p.replies.Add(1)%int64(every) == 0
}

// forget closes a connection of which one direction has ended.
func (p *Proxy) forget(c *pair) {
	c.close(false)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pairs, c)
}
