package trips

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/deadline"
)

const (
	// steps is how often a probe waits for its server: for a connection, for two answers to its
	// greeting, for one to its script, and for one to the text of that. Each takes a turn of a goroutine.
	steps = 5
	// dialTurns is how many turns a dialer takes at most: to resolve a name, to connect, and two to
	// agree on a key.
	dialTurns = 4
)

// prober asks a server to decide, as callers do: a Redis may answer a PING and still reject writes.
type prober struct {
	link      *link
	client    *redis.Client // of this server alone, or nil if there is none
	outermost string        // of the key that it asks about
	patience  time.Duration // for a round trip of the pool
	pulse     *deadline.Pulse
	asked     atomic.Pointer[time.Time] // when it last wrote on its own connection, or nil
}

// probe asks on a connection of its own, because those of the pool may be dead or busy, and on one
// of the pool, because the server may take no new ones. Fails tells whether its error says that the
// server cannot decide now. A Redis that is misconfigured is for every caller to hear.
func (p *prober) probe(ctx context.Context) error {
	if p.client == nil { // there is no other connection to ask on
		return p.tryPool(ctx, p.link.Client, p.patience)
	}
	// Each step has its own time. All together bound what does not heed that, such as a dialer.
	ctx, cancel := p.pulse.WithinTurns(ctx, 3*p.link.patience, steps+dialTurns)
	defer cancel()
	return p.tryOwn(ctx)
}

// tryOwn asks on a new connection, and over the pool if that is slow or a full server shuts it.
func (p *prober) tryOwn(ctx context.Context) error {
	l := p.link
	var asked time.Time // over the pool
	pooled := make(chan error, 1)
	ask := sync.OnceFunc(func() {
		l.Tasks.Go(func() {
			asked = time.Now()
			pooled <- p.tryPool(ctx, p.client, l.quiet)
		})
	})
	// A pool that cannot dial often enough stops dialling for a second, so it is asked late.
	late := time.AfterFunc(l.quiet/5, ask)
	defer func() {
		if !late.Stop() {
			ask() // has begun, so that Close waits for it
		}
	}()
	own := p.dial()
	defer own.Close()
	err := p.ask(ctx, own)
	// A dialer that asks a Sentinel first may have been refused by that.
	dialed, direct := err.(*net.OpError)
	refused := direct && errors.Is(dialed, syscall.ECONNREFUSED)
	silent := fails(err) && !answered(err) && !refused
	if silent || full(err) {
		ask()
		e, last := <-pooled, p.asked.Load()
		fresh := last == nil || asked.After(*last) // otherwise the server may have died since
		if !fresh && answered(e) && (full(err) || hungUp(err)) {
			e, fresh = p.tryPool(ctx, p.client, l.quiet), true
		}
		if fresh && answered(e) {
			return e
		}
	}
	return err
}

// tryPool asks on a connection of the client's pool.
func (p *prober) tryPool(
	ctx context.Context, client redis.UniversalClient, wait time.Duration,
) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return p.link.bounded(ctx, func() error { return p.ask(ctx, client) })
}

// ask sends the probe. A reply that is none to it is an error.
func (p *prober) ask(ctx context.Context, client redis.UniversalClient) error {
	parcel := p.link.Probe(p.outermost)
	b := parcel.Batch()
	b.Add(parcel)
	reply, err := p.link.Send(ctx, client, b)
	if err != nil {
		return err
	}
	return b.Deliver(reply)
}

// fails reports whether an error says that a server cannot decide now. One that is healthy says that
// another has the slot, or none.
func fails(err error) bool { return err != nil && Classify(err) == Outage && !elsewhere(err) }

// full reports whether a server takes no more connections.
func full(err error) bool {
	return err != nil && strings.Contains(err.Error(), "max number of clients")
}

// dial returns a client with the options of the server's and connections of its own. It fails as
// soon as the server has been quiet for long enough.
func (p *prober) dial() *redis.Client {
	l, o := p.link, separate(p.client)
	dialer, wait := o.Dialer, l.quiet
	if o.TLSConfig != nil { // whose handshake takes several round trips
		wait = l.patience
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := p.connect(ctx, wait, func(ctx context.Context) (net.Conn, error) {
			return dialer(ctx, network, addr)
		})
		if err != nil {
			return nil, err
		}
		return &probeConn{c, l.quiet, &p.asked}, nil
	}
	// It dials once, and after as many failures as PoolSize a pool would go on by itself.
	o.PoolSize, o.DialTimeout = 10, time.Hour // which connect bounds
	o.ReadTimeout, o.WriteTimeout = l.quiet, l.quiet
	return redis.NewClient(&o)
}

// separate returns the options of a client for connections beside its pool. They heed contexts, are
// not tried again, and greet the server in as few round trips as they can.
func separate(client *redis.Client) redis.Options {
	o := *client.Options()
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 0, 0, 0
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ContextTimeoutEnabled, o.Limiter = true, nil
	o.ClientName, o.DisableIdentity = "", true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}

// connect connects within the time that this process runs, or some turns of a goroutine later. Nothing
// but the dialer's own goroutine can see that a connection is there.
func (p *prober) connect(
	ctx context.Context, wait time.Duration, dial func(context.Context) (net.Conn, error),
) (net.Conn, error) {
	ctx, cancel := p.pulse.WithinTurns(ctx, wait, dialTurns)
	defer cancel()
	for {
		lost := p.pulse.Lost()
		c, err := dial(ctx)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil || !timedOut(err) || p.pulse.Lost() == lost {
			return nil, err
		} // otherwise the dialer has a time of its own
	}
}

// probeConn is a connection on which nothing times out while an answer is there. If the process gets
// no time to run, the timer may go off first.
type probeConn struct {
	net.Conn
	quiet time.Duration
	asked *atomic.Pointer[time.Time]
}

func (c *probeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if e := c.Conn.SetReadDeadline(time.Now().Add(lookAgain)); e != nil {
		return n, err
	}
	return c.Conn.Read(p)
}

func (c *probeConn) Write(p []byte) (int, error) {
	now := time.Now()
	c.asked.Store(&now)
	n, err := c.Conn.Write(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if e := c.Conn.SetWriteDeadline(time.Now().Add(c.quiet)); e != nil {
		return n, err
	}
	return c.Conn.Write(p)
}

// lookAgain is the time for a second look, which finds what is there and waits for no more.
const lookAgain = time.Millisecond
