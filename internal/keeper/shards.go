package keeper

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// shards are the channels by which a process listens to a Redis Cluster. There is one for each
// outermost key with waiters, in the slot of that key, and one connection to each node. The channels
// are sharded, because a message on a plain one goes to every node. They are plain on a server that
// does not know sharded ones, or does not let scripts send to them. The keeper's lock guards them.
type shards struct {
	keeper  *Keeper
	cluster *redis.ClusterClient
	all     map[string]*shard // by name
	of      map[*Waiter]*shard
	nodes   map[string]*node // by address
	denied  time.Time        // when the user was last not allowed to subscribe
	known   bool             // a server knows SPUBLISH
	plain   bool
}

// shard is one channel.
type shard struct {
	name    string
	waiters map[*Waiter]struct{}
	node    *node // where it is subscribed, or nil
	hears   bool  // Redis has confirmed the subscription
	idle    time.Time
	listed  bool // in the node's list of idle channels
}

const (
	// grace is how long a channel without waiters stays subscribed.
	grace = time.Second
	// deniedPause is how long nothing subscribes after the user was not allowed to.
	deniedPause = 10 * time.Second
)

func newShards(k *Keeper, cluster *redis.ClusterClient) *shards {
	return &shards{
		keeper:  k,
		cluster: cluster,
		all:     make(map[string]*shard),
		of:      make(map[*Waiter]*shard),
		nodes:   make(map[string]*node),
	}
}

// channel implements channels. By the brace of its name the script knows that it lies in the slot of the key.
func (s *shards) channel(outermost string) string {
	return s.keeper.Prefix + outermost + ":wake:" + s.keeper.ID
}

// wait listens only if others wait at the same outermost key already: most callers never wait, and one
// that does asks again once it listens.
func (s *shards) wait(w *Waiter, outermost string) {
	if name := s.channel(outermost); s.all[name] != nil {
		s.join(w, name)
	}
}

// hold does nothing: evictions are not told on a cluster.
func (s *shards) hold() {}

// attend implements channels.
func (s *shards) attend(ctx context.Context, w *Waiter, name string) {
	client, err := s.cluster.MasterForKey(ctx, name)
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	if s.keeper.closing {
		return
	}
	joins := s.of[w] == nil
	if joins {
		s.join(w, name)
	}
	c := s.of[w]
	if err == nil {
		s.place(c, client)
	}
	if joins && c.hears { // otherwise a confirmation wakes it
		w.wake()
	}
}

// join adds a waiter to a channel. The lock is held here and below.
func (s *shards) join(w *Waiter, name string) {
	c := s.all[name]
	if c == nil {
		c = &shard{name: name, waiters: make(map[*Waiter]struct{})}
		s.all[name] = c
	}
	c.waiters[w] = struct{}{}
	s.of[w] = c
}

func (s *shards) leave(w *Waiter) {
	c := s.of[w]
	if c == nil {
		return
	}
	delete(s.of, w)
	delete(c.waiters, w)
	switch {
	case len(c.waiters) > 0:
	case c.node == nil:
		delete(s.all, c.name)
	default:
		c.idle = time.Now()
		if !c.listed {
			c.listed = true
			c.node.idle = append(c.node.idle, c)
		}
	}
}

// place subscribes a channel at a node, unless it is there already.
func (s *shards) place(c *shard, client *redis.Client) {
	addr := client.Options().Addr
	if c.node != nil {
		if c.node.addr == addr {
			return
		}
		c.node.unsubscribe(c)
	}
	if s.keeper.done.Err() != nil || time.Since(s.denied) < deniedPause {
		return
	}
	n := s.nodes[addr]
	if n == nil {
		n = newNode(s, client)
		s.nodes[addr] = n
		s.keeper.Tasks.Go(n.write)
	}
	c.node = n
	n.channels[c] = struct{}{}
	n.order(c, false)
}

// again subscribes channels whose connection broke. The lock is not held. On failure the waiters
// ask from time to time.
func (s *shards) again(lost []*shard) {
	for _, c := range lost {
		client, err := s.cluster.MasterForKey(s.keeper.done, c.name)
		if err != nil {
			return
		}
		s.keeper.mu.Lock()
		if s.all[c.name] == c && c.node == nil {
			s.place(c, client)
		}
		s.keeper.mu.Unlock()
	}
}

// unsupported goes over to plain channels for good.
func (s *shards) unsupported() {
	if s.plain {
		return
	}
	s.plain = true
	for _, n := range s.nodes {
		n.end()
	}
	s.keeper.waiting.wake() // to subscribe again
}

// check asks a node for SPUBLISH, unless one is known to know it. Kvrocks has SSUBSCRIBE without it.
// The lock is not held.
func (s *shards) check(client *redis.Client, channel string) {
	k := s.keeper
	k.mu.Lock()
	known := s.known || s.plain
	k.mu.Unlock()
	if known {
		return
	}
	err := client.SPublish(k.done, channel, "").Err()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case isUnknown(err):
		s.unsupported()
	case err == nil || errors.As(err, new(redis.Error)):
		s.known = true
	}
}

// isUnknown reports whether a server does not know a command.
func isUnknown(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "ERR unknown command")
}
