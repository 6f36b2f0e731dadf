package keeper

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is a connection to a node of a cluster, for as long as a channel is subscribed there. The
// keeper's lock guards it.
type node struct {
	shards   *shards
	addr     string
	client   *redis.Client
	pubsub   *redis.PubSub
	begun    time.Time
	plain    bool // of the channels
	channels map[*shard]struct{}
	todo     []order // not sent yet
	asked    []order // sent and not answered yet
	idle     []*shard
	changed  chan struct{}
	stop     context.CancelFunc
	done     context.Context
}

// order is a command about one channel: channels of different slots cannot share a command.
type order struct {
	channel *shard
	leave   bool
}

func newNode(s *shards, client *redis.Client) *node {
	n := &node{
		shards: s, addr: client.Options().Addr, client: client, begun: time.Now(),
		pubsub:   client.Subscribe(s.keeper.done),
		plain:    s.plain,
		channels: make(map[*shard]struct{}), changed: make(chan struct{}, 1),
	}
	n.done, n.stop = context.WithCancel(s.keeper.done)
	return n
}

func (n *node) order(c *shard, leave bool) {
	n.todo = append(n.todo, order{c, leave})
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// detach forgets a channel that is no longer subscribed here.
func (n *node) detach(c *shard) {
	delete(n.channels, c)
	c.node, c.hears, c.listed = nil, false, false
	if len(c.waiters) == 0 {
		delete(n.shards.all, c.name)
	}
	if len(n.channels) == 0 {
		n.end()
	}
}

func (n *node) unsubscribe(c *shard) {
	n.order(c, true)
	n.detach(c)
}

// end closes the connection.
func (n *node) end() {
	if n.done.Err() == nil {
		n.stop()
		for c := range n.channels {
			n.detach(c)
		}
	}
	if n.shards.nodes[n.addr] == n {
		delete(n.shards.nodes, n.addr)
	}
}

// write sends the orders. Nothing else writes, so that answers come in the order of asked.
func (n *node) write() {
	defer func() { _ = n.pubsub.Close() }()
	tick := time.NewTicker(grace)
	defer tick.Stop()
	reads := false
	for {
		for o, ok := n.next(); ok; o, ok = n.next() {
			n.shards.check(n.client, o.channel.name)
			if err := n.send(o); err != nil {
				n.broken()
				return
			}
			if !reads {
				reads = true
				n.shards.keeper.Tasks.Go(n.read)
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

func (n *node) send(o order) error {
	subscribe, unsubscribe := n.pubsub.SSubscribe, n.pubsub.SUnsubscribe
	if n.plain {
		subscribe, unsubscribe = n.pubsub.Subscribe, n.pubsub.Unsubscribe
	}
	if o.leave {
		return unsubscribe(n.done, o.channel.name)
	}
	return subscribe(n.done, o.channel.name)
}

func (n *node) next() (o order, ok bool) {
	n.shards.keeper.mu.Lock()
	defer n.shards.keeper.mu.Unlock()
	if len(n.todo) == 0 || n.done.Err() != nil {
		return order{}, false
	}
	o, n.todo = n.todo[0], n.todo[1:]
	n.asked = append(n.asked, o)
	return o, true
}

// expire unsubscribes channels that have had no waiters for a while.
func (n *node) expire() {
	n.shards.keeper.mu.Lock()
	defer n.shards.keeper.mu.Unlock()
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
			n.unsubscribe(c)
		}
	}
}

func (n *node) read() {
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
			ok = n.rejected(err)
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

// hear takes a message, and reports whether it was expected.
func (n *node) hear(m any) bool {
	k := n.shards.keeper
	switch m := m.(type) {
	case *redis.Message:
		k.Tell(m.Payload)
	case *redis.Subscription:
		k.mu.Lock()
		defer k.mu.Unlock()
		leave := strings.HasSuffix(m.Kind, "unsubscribe")
		if len(n.asked) > 0 && n.asked[0].leave == leave && n.asked[0].channel.name == m.Channel {
			c := n.asked[0].channel
			n.asked = n.asked[1:]
			if !leave && c.node == n {
				c.hears = true
				for w := range c.waiters { // earlier messages are lost
					w.wake()
				}
			}
			return true
		}
		if c := n.shards.all[m.Channel]; leave && c != nil && c.node == n { // its slot has moved
			n.detach(c)
			n.shards.cluster.ReloadState(n.done)
			for w := range c.waiters {
				w.wake()
			}
		}
		return leave
	}
	return true
}

// rejected takes an error as the answer to the first order that was sent, and reports whether it
// was one.
func (n *node) rejected(err error) bool {
	k := n.shards.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(n.asked) == 0 ||
		redis.HasErrorPrefix(err, "CROSSSLOT") { // the client has connected again by itself
		return false
	}
	o := n.asked[0]
	n.asked = n.asked[1:]
	switch {
	case o.leave:
	case isUnknown(err):
		n.shards.unsupported()
		return true
	case redis.HasErrorPrefix(err, "NOPERM"):
		n.shards.denied = time.Now()
	case redis.HasErrorPrefix(err, "MOVED"):
		n.shards.cluster.ReloadState(n.done)
	}
	if !o.leave && o.channel.node == n {
		n.detach(o.channel)
	}
	return true
}

// broken ends a connection, and makes another one at once if this one lasted for a while.
func (n *node) broken() {
	k := n.shards.keeper
	k.mu.Lock()
	var lost []*shard
	for c := range n.channels {
		if len(c.waiters) > 0 {
			lost = append(lost, c)
		}
	}
	n.end()
	k.mu.Unlock()
	if k.done.Err() == nil && time.Since(n.begun) > grace {
		n.shards.again(lost)
	}
}
