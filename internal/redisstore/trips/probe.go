package trips

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// prober asks a server to decide, as callers do: a Redis may answer a PING and still reject writes.
type prober struct {
	link      *link
	client    *redis.Client // of this server alone, or nil if there is none
	outermost string        // of the key that it asks about
}

// probe asks on a connection of its own, because those of the pool may be dead or busy, and on one
// of the pool, because the server may take no new ones. Fails tells whether its error says that the
// server cannot decide now. A Redis that is misconfigured is for every caller to hear.
func (p prober) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.link.patience)
	defer cancel()
	if p.client == nil { // there is no other connection to ask on
		return p.tryPool(ctx, p.link.Client)
	}
	return p.tryOwn(ctx)
}

// tryOwn asks on a new connection, and over the pool if that is slow or refused by a full server.
func (p prober) tryOwn(ctx context.Context) error {
	l := p.link
	pooled := make(chan error, 1)
	ask := sync.OnceFunc(func() {
		l.Tasks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, l.quiet)
			defer cancel()
			pooled <- p.tryPool(ctx, p.client)
		})
	})
	// A pool that cannot dial often enough stops dialling for a second, so it is asked late.
	late := time.AfterFunc(l.quiet/5, ask)
	defer func() {
		if !late.Stop() {
			ask() // has begun, so that Close waits for it
		}
	}()
	own := l.dial(p.client)
	defer own.Close()
	_, err := l.Send(ctx, own, p.batch())
	silent := fails(err) && !errors.As(err, new(redis.Error)) && !errors.Is(err, syscall.ECONNREFUSED)
	if silent || full(err) {
		ask()
		if e := <-pooled; e == nil || errors.As(e, new(redis.Error)) {
			return e
		}
	}
	return err
}

// tryPool asks on a connection of the client's pool.
func (p prober) tryPool(ctx context.Context, client redis.UniversalClient) error {
	b := p.batch()
	return p.link.bounded(ctx, func() error {
		_, err := p.link.Send(ctx, client, b)
		return err
	})
}

// batch returns what the probe sends.
func (p prober) batch() Batch {
	parcel := p.link.Probe(p.outermost)
	b := parcel.Batch()
	b.Add(parcel)
	return b
}

// fails reports whether an error says that a server cannot decide now.
func fails(err error) bool { return err != nil && Classify(err) == Outage && !moves(err) }

// full reports whether a server takes no more connections.
func full(err error) bool {
	return err != nil && strings.Contains(err.Error(), "max number of clients")
}

// dial returns a client with the options of another and connections of its own. It fails as soon as
// the server has been quiet for long enough.
func (l *link) dial(client *redis.Client) *redis.Client {
	o := *client.Options()
	dialer := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		quiet := l.quiet
		if o.TLSConfig != nil { // whose handshake takes several round trips
			quiet = l.patience
		}
		ctx, cancel := context.WithTimeout(ctx, quiet)
		defer cancel()
		c, err := dialer(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &probeConn{c}, nil
	}
	// It dials once, and after as many failures as PoolSize a pool would go on by itself.
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns = 10, 0, 0, 0
	o.MaxRetries, o.DialerRetries = -1, 1
	o.ReadTimeout, o.WriteTimeout = l.quiet, l.quiet
	o.ContextTimeoutEnabled, o.Limiter = true, nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&o)
}

// probeConn is a connection whose read does not time out while an answer is there. If the process
// gets no time to run, the timer may go off first.
type probeConn struct{ net.Conn }

func (c *probeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	if e := c.Conn.SetReadDeadline(time.Now().Add(time.Millisecond)); e != nil {
		return n, err
	}
	return c.Conn.Read(p)
}
