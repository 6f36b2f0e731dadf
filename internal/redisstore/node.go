package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

// node is one server, with its queue and its circuit.
type node struct {
	store   *Store
	addr    string
	client  *redis.Client // of this server alone, or nil if there is none
	queue   *queue
	circuit *breaker.Breaker
	suspect atomic.Value // string: the outermost part of a key whose call had no answer
	stale   atomic.Bool  // a round trip timed out: its connection may be one of many dead ones
	sweeps  atomic.Bool  // a sweep runs
}

func newNode(s *Store, addr string, client *redis.Client) *node {
	n := &node{store: s, addr: addr, client: client}
	n.suspect.Store("{ping}")
	n.queue = newQueue(n)
	n.circuit = breaker.New(breaker.Config{Probe: n.probe, Probed: n.probed, Tasks: s.Tasks})
	return n
}

// Kind is the kind of a Notice.
type Kind uint8

// The kinds of a Notice.
const (
	Opened        Kind = iota // the server fails
	Closed                    // the server answers again
	Overloaded                // calls ended that this process could not send or read in time
	ScriptMissing             // a server did not know a script, and has it now
)

// Notice says what became of a server.
type Notice struct {
	Kind Kind
	Node string // its address, unless a script was missing
	Err  error  // why it was opened
}

func (n *node) notify(kind Kind, err error) {
	if n.store.Notify != nil {
		n.store.Notify(context.Background(), Notice{kind, n.addr, err})
	}
}

// doubt starts a probe, because a call on a key of that outermost part had no answer.
func (n *node) doubt(outermost string) {
	n.suspect.Store(outermost)
	n.circuit.Doubt()
}

// probed hears of the outcome of each probe. It returns false when another server has the keys of one
// that fails.
func (n *node) probed(fault error, changed bool) (watched bool) {
	switch {
	case fault != nil && changed:
		n.queue.opened()
		n.notify(Opened, fault)
	case changed:
		n.queue.closed()
		n.notify(Closed, nil)
	}
	if cluster, ok := n.store.Client.(*redis.ClusterClient); ok && fault != nil && n.replaced(cluster) {
		return false
	}
	if fault == nil && (n.stale.Swap(false) || changed) && n.sweeps.CompareAndSwap(false, true) {
		n.store.Tasks.Go(n.sweep)
	}
	return true
}

// replaced forgets a server that fails if another has its keys, and otherwise looks for one.
func (n *node) replaced(cluster *redis.ClusterClient) bool {
	ctx, suspect := context.Background(), n.suspect.Load().(string)
	if n.client != nil {
		if known, ok := n.store.nodes.Load(n.addr); !ok || known != n {
			return true // earlier; its last calls doubt it still
		}
		if master, err := cluster.MasterForKey(ctx, suspect); err == nil && master.Options().Addr != n.addr &&
			n.store.nodes.CompareAndDelete(n.addr, n) {
			n.notify(Closed, nil)
			return true
		}
	}
	cluster.ReloadState(ctx)
	return false
}

// sweep drops the connections of the pool that do not answer. Pings at the same time take different
// ones.
func (n *node) sweep() {
	defer n.sweeps.Store(false)
	client := n.store.Client
	if n.client != nil {
		client = n.client.WithTimeout(n.store.quiet) // with the same pool
	}
	ctx, cancel := context.WithTimeout(context.Background(), n.store.quiet)
	defer cancel()
	var pings sync.WaitGroup
	for range client.PoolStats().IdleConns {
		pings.Go(func() {
			defer func() { _ = recover() }()                            // of a hook of the client
			_ = client.Process(ctx, onceAny{redis.NewCmd(ctx, "ping")}) // a failure closes the connection
		})
	}
	pings.Wait()
}

// heardSince reports whether the server has answered a call that was sent after that time.
func (q *queue) heardSince(t time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.heard.After(t)
}

// hear says that the server has answered what was sent at that time.
func (q *queue) hear(t time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hears(t)
}

func (q *queue) hears(sent time.Time) {
	q.answered = time.Now()
	if sent.After(q.heard) {
		q.heard = sent
	}
}
