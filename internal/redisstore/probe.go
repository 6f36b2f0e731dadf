package redisstore

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

	"github.com/headgate/headgate/internal/request"
)

// probe asks the server to decide, as callers do: a Redis may answer a PING and still reject writes.
// It asks on a connection of its own, because those of the pool may be dead or busy, and on one of
// the pool, because the server may take no new ones. It returns nil if the server answers anything
// but that it cannot decide now. A Redis that is misconfigured is for every caller to hear.
func (n *node) probe(ctx context.Context) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, n.store.patience)
	defer cancel()
	var err error
	if n.client == nil { // there is no other connection to ask on
		err = n.tryPool(ctx, n.store.Client)
	} else {
		err = n.tryOwn(ctx)
	}
	if fails(err) && (errors.As(err, new(redis.Error)) || !n.queue.heardSince(begun)) {
		return err
	}
	n.queue.hear(begun)
	return nil
}

// tryOwn asks on a new connection, and over the pool if that is slow or refused by a full server.
func (n *node) tryOwn(ctx context.Context) error {
	s := n.store
	pooled := make(chan error, 1)
	ask := sync.OnceFunc(func() {
		s.Tasks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, s.quiet)
			defer cancel()
			pooled <- n.tryPool(ctx, n.client)
		})
	})
	// A pool that cannot dial often enough stops dialling for a second, so it is asked late.
	late := time.AfterFunc(s.quiet/5, ask)
	defer func() {
		if !late.Stop() {
			ask() // has begun, so that Close waits for it
		}
	}()
	own := s.dial(n.client)
	defer own.Close()
	commands := n.probing(ctx)
	err := first(commands, s.exchange(ctx, own, commands))
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
func (n *node) tryPool(ctx context.Context, client redis.UniversalClient) error {
	s, commands := n.store, n.probing(ctx)
	return first(commands, s.bounded(ctx, func() error { return s.exchange(ctx, client, commands) }))
}

// probing returns the command of a probe.
func (n *node) probing(ctx context.Context) []command {
	k := n.store.acquireCall(ctx, []request.Request{n.store.Probe(n.suspect.Load().(string))})
	k.alone = true
	t := &trip{calls: []*call{k}}
	n.store.pack(t)
	return t.commands
}

// first returns the error of the first command, or that of the whole exchange.
func first(commands []command, err error) error {
	if err == nil {
		err = commands[0].err()
	}
	return err
}

// fails reports whether an error says that a server cannot decide now.
func fails(err error) bool { return err != nil && Classify(err) == Outage && !moves(err) }

// full reports whether a server takes no more connections.
func full(err error) bool {
	return err != nil && strings.Contains(err.Error(), "max number of clients")
}

// dial returns a client with the options of another and connections of its own. It fails as soon as
// the server has been quiet for long enough.
func (s *Store) dial(client *redis.Client) *redis.Client {
	o := *client.Options()
	dialer := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		quiet := s.quiet
		if o.TLSConfig != nil { // whose handshake takes several round trips
			quiet = s.patience
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
	o.ReadTimeout, o.WriteTimeout = s.quiet, s.quiet
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
