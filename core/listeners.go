package core

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// listeners listen on a Redis Cluster, where a message on a plain channel goes to every node: to a channel in the slot of each
// scope at which somebody waits, by one connection for each node. The leases' lock guards them.
type listeners struct {
	leases   *leases
	cluster  *redis.ClusterClient
	id       string
	channels map[string]*channel
	nodes    map[string]*listener // by address
	denied   time.Time            // when the user was last found not to be allowed to subscribe
}

// channel is where the waiters of one process hear of a scope.
type channel struct {
	name    string
	waiters map[*waiter]struct{}
	node    *listener // that is asked for it, or nil
	hears   bool      // Redis has said that it is subscribed
	idle    time.Time
	listed  bool // among those of its node that may be idle
}

const (
	// grace is for how long a channel is kept without waiters, so that a busy scope is not subscribed again and again.
	grace = time.Second
	// denial is for how long nobody subscribes where it was not allowed.
	denial = 10 * time.Second
)

func newListeners(l *leases, client redis.UniversalClient, id string) *listeners {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return nil
	}
	return &listeners{leases: l, cluster: cluster, id: id, channels: make(map[string]*channel), nodes: make(map[string]*listener)}
}

// name is that of the channel of an outermost key. The script knows by the brace that it is a sharded one.
func (s *listeners) name(outermost string) string {
	return s.leases.gate.prefix + outermost + ":wake:" + s.id
}

// channel is where the waiters at an outermost key are to be told, and whether what is told there from now on reaches this one.
func (l *leases) channel(outermost string, w *waiter) (name string, hears bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sharded == nil {
		return l.plain, true
	}
	return l.sharded.name(outermost), w != nil && w.channel != nil && w.channel.hears
}

// attend sees to it that a waiter hears of its turn. If it did not when it asked, it asks again as soon as it does.
func (l *leases) attend(ctx context.Context, w *waiter, name string, heard bool) {
	l.mu.Lock()
	s := l.sharded
	l.mu.Unlock()
	if s == nil {
		return
	}
	node, err := s.cluster.MasterForKey(ctx, name)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sharded == nil || l.closing {
		return
	}
	if w.channel == nil {
		s.join(w, name)
	}
	if err == nil {
		s.place(w.channel, node)
	}
	if w.channel.hears && !heard {
		w.wake()
	}
}

// join, and all below, is called with the lock.
func (s *listeners) join(w *waiter, name string) {
	c := s.channels[name]
	if c == nil {
		c = &channel{name: name, waiters: make(map[*waiter]struct{})}
		s.channels[name] = c
	}
	c.waiters[w] = struct{}{}
	w.channel = c
}

func (s *listeners) leave(w *waiter) {
	c := w.channel
	if c == nil {
		return
	}
	delete(c.waiters, w)
	switch {
	case len(c.waiters) > 0:
	case c.node == nil:
		delete(s.channels, c.name)
	default:
		c.idle = time.Now()
		if !c.listed {
			c.listed = true
			c.node.idle = append(c.node.idle, c)
		}
	}
}

// place subscribes a channel at a node, if it is not there already.
func (s *listeners) place(c *channel, client *redis.Client) {
	addr := client.Options().Addr
	if c.node != nil {
		if c.node.addr == addr {
			return
		}
		c.node.drop(c)
	}
	if s.leases.done.Err() != nil || time.Since(s.denied) < denial {
		return
	}
	n := s.nodes[addr]
	if n == nil {
		n = newListener(s, client)
		s.nodes[addr] = n
		s.leases.gate.tasks.run(n.write)
	}
	c.node = n
	n.channels[c] = struct{}{}
	n.order(c, false)
}

// again subscribes channels whose connection broke. Where that fails who waits there asks by himself.
func (s *listeners) again(lost []*channel) {
	for _, c := range lost {
		node, err := s.cluster.MasterForKey(s.leases.done, c.name)
		if err != nil {
			return
		}
		s.leases.mu.Lock()
		if s.leases.sharded != nil && s.channels[c.name] == c && c.node == nil {
			s.place(c, node)
		}
		s.leases.mu.Unlock()
	}
}

// unsupported goes over to one plain channel for good, because a node is too old.
func (s *listeners) unsupported() {
	for _, n := range s.nodes {
		n.end()
	}
	s.leases.sharded = nil
	s.leases.subscribe()
	s.leases.wakeAll() // to ask to be told there
}
