package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/stored"
)

const (
	redisVariable = "HEADGATE_REDIS"
	defaultRedis  = "redis://127.0.0.1:6379"
)

// connection says where Redis is, and how Headgate's keys begin.
type connection struct {
	url, prefix, topology string
	timeout               time.Duration
	ca, cert, key         string // files of TLS

	// These are there once it is open.
	client redis.UniversalClient
	gate   *core.Gate
	reader *stored.Reader
}

// topologies are the values of --topology.
var topologies = []string{"auto", "server", "cluster", "proxy"}

func (c *connection) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(
		&c.url,
		"redis",
		"",
		"URL of Redis: redis://, rediss:// or unix://; with ?master_name=NAME of\n"+
			"sentinels; with ?addr=HOST:PORT of further nodes ($"+redisVariable+", "+defaultRedis+")",
	)
	f.StringVar(&c.prefix, "prefix", "hg", "core.Config.Prefix of the application")
	f.StringVar(
		&c.topology, "topology", "auto",
		"server, cluster, or proxy that hides a cluster; auto asks the server",
	)
	f.DurationVar(&c.timeout, "timeout", 2*time.Second, "how long one operation may take")
	f.StringVar(&c.ca, "tls-ca", "", "file of the certificates that rediss:// trusts")
	f.StringVar(&c.cert, "tls-cert", "", "file of this client's certificate")
	f.StringVar(&c.key, "tls-key", "", "file of its private key")
}

// names returns how every name of a key of Redis begins.
func (c *connection) names() string { return c.prefix + ":" }

// close closes the Gate and its client.
func (c *connection) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.gate.Close(ctx) // it holds no lease
	_ = c.client.Close()
}

// open connects to Redis. The errors of the server come with the first command.
func (c *connection) open(ctx context.Context) (err error) {
	if c.client, err = c.dial(ctx); err != nil {
		return err
	}
	cfg := core.Config{Prefix: c.prefix, Timeout: c.timeout, DisableDenialCache: true}
	if c.topology == "proxy" {
		cfg.Topology = core.TopologyCluster
	}
	if c.gate, err = core.NewRedis(c.client, cfg); err != nil {
		_ = c.client.Close()
		return usagef("%s", strings.NewReplacer(
			"core: Config.Prefix", "--prefix", "core: Config.Timeout", "--timeout").Replace(err.Error()))
	}
	core.Inside(hub.Pass{}).StateNothing(c.gate)
	c.reader = &stored.Reader{Client: c.client, Prefix: c.names(), Timeout: c.timeout}
	return nil
}

// within calls f with a context that ends after the timeout.
func (c *connection) within(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := f(ctx)
	// The client may see the deadline before the context's timer has fired.
	if err != nil && (errors.Is(ctx.Err(), context.DeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)) {
		return fmt.Errorf("no answer within --timeout %v: %w", c.timeout, err)
	}
	return err
}
