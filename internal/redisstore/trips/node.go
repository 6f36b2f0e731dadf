package trips

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/breaker"
)

// node is one server, with its queue and its circuit.
type node struct {
	link     *link
	addr     string
	client   *redis.Client // of this server alone, or nil if there is none
	queue    *queue
	circuit  *breaker.Breaker
	replaced func(*node) bool // reports whether another server has the keys of one that fails

	suspect atomic.Value // string: the outermost part of a key whose call had no answer
	stale   atomic.Bool  // a round trip timed out: its connection may be one of many dead ones
}

func newNode(l *link, addr string, client *redis.Client, replaced func(*node) bool) *node {
	n := &node{link: l, addr: addr, client: client, replaced: replaced}
	n.suspect.Store("{ping}")
	n.queue = newQueue(n)
	// So a probe begins and ends within the time of a call that has no answer.
	soon := min(breaker.Pause, l.Timeout/4)
	n.circuit = breaker.New(breaker.Config{
		Probe: n.probe, Probed: n.probed, Stopped: func() { n.notify(Closed, nil) }, Soon: soon, Tasks: l.Tasks,
	})
	return n
}

// travel sends the commands of a trip and gives each call its part of the answer, or its error. It
// returns an error if the server did not answer. That error fails all calls.
func (n *node) travel(ctx context.Context, t *trip) error {
	if err := n.exchange(ctx, t); err != nil {
		n.fails(t, err)
		return err
	}
	t.deliver(n.doubt)
	return nil
}

// exchange sends the commands of a trip and reads the replies.
func (n *node) exchange(ctx context.Context, t *trip) error {
	l, commands := n.link, t.commands
	switch {
	case t.own && n.client != nil:
		return n.exchangeAlone(ctx, commands)
	case l.inline: // as bounded does, without a closure
		return l.exchange(ctx, l.Client, commands)
	}
	err := l.bounded(ctx, func() error { return l.exchange(ctx, l.Client, commands) })
	if err != nil && ctx.Err() != nil {
		t.commands = nil // the client may still use them
	}
	return err
}

// fails judges the error of a trip that has no answer.
func (n *node) fails(t *trip, err error) {
	if p := (*panicError)(nil); errors.As(err, &p) {
		t.panicked = p.value
		return
	}
	if timedOut(err) {
		n.stale.Store(true)
	}
	if Classify(err) == Outage {
		n.doubt(t.calls[0].Outermost)
	}
}

// exchangeAlone sends commands on a connection of their own. Each step may take half of the time until
// the deadline of ctx, or as long as the client lets it, if that is longer.
func (n *node) exchangeAlone(ctx context.Context, commands []command) error {
	end, _ := ctx.Deadline()
	half := min(time.Until(end)/2, longestWait)
	o := separate(n.client)
	o.PoolSize, o.DialTimeout = 1, max(o.DialTimeout, half)
	o.ReadTimeout, o.WriteTimeout = max(o.ReadTimeout, half), max(o.WriteTimeout, half)
	own := redis.NewClient(&o)
	defer own.Close()
	return n.link.exchange(ctx, own, commands)
}

// doubt starts a probe, because a call on a key of that outermost part had no answer.
func (n *node) doubt(outermost string) {
	n.suspect.Store(outermost)
	n.circuit.Doubt()
}

func (n *node) overloaded() { n.notify(Overloaded, nil) }

func (n *node) notify(kind Kind, err error) {
	n.link.notify(context.Background(), Notice{kind, n.addr, err})
}

// probe asks whether the server decides. It returns nil if a call was answered meanwhile.
func (n *node) probe(ctx context.Context) error {
	begun, pulse := time.Now(), &n.queue.pulse
	pulse.Hold()
	defer pulse.Drop()
	p := prober{
		link: n.link, client: n.client, outermost: n.suspect.Load().(string),
		patience: n.queue.patience(), pulse: pulse,
	}
	err := p.probe(ctx)
	if fails(err) && (answered(err) || !n.queue.heardSince(begun, p.asked.Load())) {
		return err
	}
	n.queue.hear(begun)
	return nil
}

// probed receives the outcome of each probe. It returns false when another server has the keys of
// one that fails.
func (n *node) probed(fault error, changed bool) (watched bool) {
	n.queue.resume()
	switch {
	case fault != nil && changed:
		n.notify(Opened, fault)
	case changed:
		n.notify(Closed, nil)
	}
	if fault != nil && n.replaced(n) {
		return false
	}
	if fault == nil && (n.stale.Swap(false) || changed) {
		n.sweep()
	}
	return true
}

// sweep drops the connections of the pool that do not answer. Pings at the same time take different
// ones.
func (n *node) sweep() {
	client := n.link.Client
	if n.client != nil {
		client = n.client.WithTimeout(n.link.quiet) // with the same pool
	}
	for range client.PoolStats().IdleConns {
		n.link.Tasks.Go(func() {
			defer func() { _ = recover() }() // of a hook of the client
			ctx, cancel := context.WithTimeout(context.Background(), n.link.quiet)
			defer cancel()
			_ = client.Process(ctx, onceAny{redis.NewCmd(ctx, "ping")}) // a failure closes the connection
		})
	}
}
