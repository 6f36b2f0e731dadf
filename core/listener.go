package core

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// silence is how long a node says nothing before it is asked whether it is there. It has as long to answer.
const silence = 3 * time.Second

// listener is a connection to a node of a cluster for as long as a channel is subscribed there. The leases' lock guards it.
type listener struct {
	owner    *listeners
	addr     string
	pubsub   *redis.PubSub
	begun    time.Time
	channels map[*channel]struct{}
	todo     []order // not sent yet
	asked    []order // not answered yet
	idle     []*channel
	changed  chan struct{}
	stop     context.CancelFunc
	done     context.Context
}

// order is a command for one channel: those of different slots cannot share one.
type order struct {
	channel *channel
	leave   bool
}

func newListener(s *listeners, client *redis.Client) *listener {
	n := &listener{
		owner: s, addr: client.Options().Addr, pubsub: client.SSubscribe(s.leases.done), begun: time.Now(),
		channels: make(map[*channel]struct{}), changed: make(chan struct{}, 1),
	}
	n.done, n.stop = context.WithCancel(s.leases.done)
	return n
}

func (n *listener) order(c *channel, leave bool) {
	n.todo = append(n.todo, order{c, leave})
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// detach is for a channel that is not subscribed here any more.
func (n *listener) detach(c *channel) {
	delete(n.channels, c)
	c.node, c.hears, c.listed = nil, false, false
	if len(c.waiters) == 0 {
		delete(n.owner.channels, c.name)
	}
	if len(n.channels) == 0 {
		n.end()
	}
}

// drop unsubscribes a channel.
func (n *listener) drop(c *channel) {
	n.order(c, true)
	n.detach(c)
}

// end closes the connection.
func (n *listener) end() {
	if n.done.Err() == nil {
		n.stop()
		for c := range n.channels {
			n.detach(c)
		}
	}
	if n.owner.nodes[n.addr] == n {
		delete(n.owner.nodes, n.addr)
	}
}

// write sends what is ordered. Nothing else writes, so that the answers come in the order of asked.
func (n *listener) write() {
	defer func() { _ = n.pubsub.Close() }()
	tick := time.NewTicker(grace)
	defer tick.Stop()
	reads := false
	for {
		for o, ok := n.next(); ok; o, ok = n.next() {
			send := n.pubsub.SSubscribe
			if o.leave {
				send = n.pubsub.SUnsubscribe
			}
			if err := send(n.done, o.channel.name); err != nil {
				n.broken()
				return
			}
			if !reads {
				reads = true
				n.owner.leases.gate.tasks.run(n.read)
			}
		}
		select {
		case <-n.changed:
		case <-tick.C:
			n.expire()
		case <-n.done.Done():
			return
		}
	}
}

func (n *listener) next() (o order, ok bool) {
	n.owner.leases.mu.Lock()
	defer n.owner.leases.mu.Unlock()
	if len(n.todo) == 0 || n.done.Err() != nil {
		return order{}, false
	}
	o, n.todo = n.todo[0], n.todo[1:]
	n.asked = append(n.asked, o)
	return o, true
}

// expire drops the channels that nobody has waited at for a while.
func (n *listener) expire() {
	n.owner.leases.mu.Lock()
	defer n.owner.leases.mu.Unlock()
	all := n.idle
	n.idle = nil
	for _, c := range all {
		switch {
		case c.node != n:
		case len(c.waiters) > 0:
			c.listed = false
		case time.Since(c.idle) < grace:
			n.idle = append(n.idle, c)
		default:
			n.drop(c)
		}
	}
}

func (n *listener) read() {
	for silent := false; n.done.Err() == nil; {
		m, err := n.pubsub.ReceiveTimeout(n.done, silence)
		var reply redis.Error
		var network net.Error
		ok := true
		switch {
		case err == nil:
			silent = false
			ok = n.hear(m)
		case errors.As(err, &reply):
			ok = n.refused(err)
		case !silent && errors.As(err, &network) && network.Timeout():
			silent = true
			ok = n.pubsub.Ping(n.done) == nil
		default:
			ok = false
		}
		if !ok {
			n.broken()
			return
		}
	}
}

// hear says whether it understood.
func (n *listener) hear(m any) bool {
	l := n.owner.leases
	switch m := m.(type) {
	case *redis.Message:
		l.told(m.Channel, m.Payload)
	case *redis.Subscription:
		l.mu.Lock()
		defer l.mu.Unlock()
		leave := m.Kind == "sunsubscribe"
		if len(n.asked) > 0 && n.asked[0].leave == leave && n.asked[0].channel.name == m.Channel {
			c := n.asked[0].channel
			n.asked = n.asked[1:]
			if !leave && c.node == n {
				c.hears = true
				for w := range c.waiters { // what was said before is lost
					w.wake()
				}
			}
			return true
		}
		if c := n.owner.channels[m.Channel]; leave && c != nil && c.node == n { // its slot has moved
			n.detach(c)
			n.owner.cluster.ReloadState(n.done)
			for w := range c.waiters {
				w.wake()
			}
		}
		return leave
	}
	return true
}

// refused is the answer to what was asked first. It says whether it was one.
func (n *listener) refused(err error) bool {
	l := n.owner.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(n.asked) == 0 || redis.HasErrorPrefix(err, "CROSSSLOT") { // the client has connected again by itself
		return false
	}
	o := n.asked[0]
	n.asked = n.asked[1:]
	switch {
	case o.leave:
	case strings.HasPrefix(err.Error(), "ERR unknown command"):
		if l.sharded != nil {
			n.owner.unsupported()
		}
		return true
	case redis.HasErrorPrefix(err, "NOPERM"):
		n.owner.denied = time.Now()
	case redis.HasErrorPrefix(err, "MOVED"):
		n.owner.cluster.ReloadState(n.done)
	}
	if !o.leave && o.channel.node == n {
		n.detach(o.channel)
	}
	return true
}

// broken ends a connection that is no good, and makes another at once if it was good for a while.
func (n *listener) broken() {
	l := n.owner.leases
	l.mu.Lock()
	var lost []*channel
	for c := range n.channels {
		if len(c.waiters) > 0 {
			lost = append(lost, c)
		}
	}
	n.end()
	l.mu.Unlock()
	if l.done.Err() == nil && time.Since(n.begun) > grace {
		n.owner.again(lost)
	}
}
