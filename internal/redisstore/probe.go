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
	n.queue.mu.Lock()
	outermost := n.suspect
	n.queue.mu.Unlock()
	s := n.store
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	client, limit := s.Client, s.patience // no other connection is asked
	if n.client != nil {
		client, limit = n.client, s.quiet
	}
	pooled := make(chan error, 1)
	ask := sync.OnceFunc(func() {
		s.Tasks.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			commands := s.probing(ctx, outermost)
			pooled <- first(commands, s.bounded(ctx, func() error { return s.exchange(ctx, client, commands) }))
		})
	})
	var err error
	if n.client == nil {
		ask()
		err = <-pooled
		pooled <- err
	} else {
		// A pool that cannot dial often enough stops dialling for a second, so it is asked late.
		late := time.AfterFunc(s.quiet/5, ask)
		defer func() {
			if !late.Stop() {
				ask() // has begun, so that Close waits for it
			}
		}()
		own := s.dial(n.client)
		defer own.Close()
		commands := s.probing(ctx, outermost)
		err = first(commands, s.exchange(ctx, own, commands))
	}
	silent := fails(err) && !errors.As(err, new(redis.Error)) && !errors.Is(err, syscall.ECONNREFUSED)
	if silent || full(err) { // it may take no new connections
		ask()
		if e := <-pooled; n.client != nil && (e == nil || errors.As(e, new(redis.Error))) {
			err = e
		}
	}
	if fails(err) && (errors.As(err, new(redis.Error)) || !n.queue.heardSince(begun)) {
		return err
	}
	n.queue.hear(begun)
	return nil
}

// probing returns the command of a probe.
func (s *Store) probing(ctx context.Context, outermost string) []command {
	k := s.acquireCall(ctx, []request.Request{s.Probe(outermost)})
	k.alone = true
	t := &trip{calls: []*call{k}}
	s.pack(t)
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
