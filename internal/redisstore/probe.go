package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/internal/request"
)

// probe asks the server to decide, as callers do, on a connection of its own: those of the pool may
// be dead or busy, and a Redis may answer a PING and still reject writes. It returns nil if the
// server answers anything but that it cannot decide now. A Redis that is misconfigured is for every
// caller to hear.
func (n *node) probe(ctx context.Context) error {
	begun := time.Now()
	n.queue.mu.Lock()
	outermost := n.suspect
	n.queue.mu.Unlock()
	s := n.store
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	k := s.acquireCall(ctx, []request.Request{s.Probe(outermost)})
	k.alone = true
	t := &trip{calls: []*call{k}}
	s.pack(t)
	var err error
	if n.client == nil {
		err = s.bounded(ctx, func() error { return s.exchange(ctx, s.Client, t.commands) })
	} else {
		own := s.dial(n.client)
		defer own.Close()
		err = s.exchange(ctx, own, t.commands)
	}
	if err == nil {
		err = t.commands[0].err()
	}
	if err == nil || Classify(err) != Outage || moves(err) {
		n.queue.hear(begun)
		return nil
	}
	if n.queue.heardSince(begun) { // the server is there, though it takes no more connections
		return nil
	}
	return err
}

// dial returns a client with the options of another and connections of its own. It fails as soon as
// the server has been quiet for long enough.
func (s *Store) dial(client *redis.Client) *redis.Client {
	o := *client.Options()
	dialer := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, s.quiet)
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
