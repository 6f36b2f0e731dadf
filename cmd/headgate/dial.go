package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// dial returns a client of the URL of the command line or of the environment.
func (c *connection) dial(ctx context.Context) (redis.UniversalClient, error) {
	text, from := c.url, "--redis"
	if text == "" {
		text, from = cmp.Or(os.Getenv(redisVariable), defaultRedis), "$"+redisVariable
	}
	u, err := url.Parse(text)
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, u.Scheme) {
		return nil, usagef("%s is no URL such as %s", from, defaultRedis)
	}
	if !slices.Contains(topologies, c.topology) {
		return nil, usagef("--topology is %q: it must be %s", c.topology, strings.Join(topologies, ", "))
	}
	opt, err := options(u)
	if err != nil { // it does not show the URL, which may hold a password
		return nil, usagef("%s: %s", from, strings.ReplaceAll(err.Error(), u.String(), "the URL"))
	}
	opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = c.timeout, c.timeout, c.timeout
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if err := c.tls(opt.TLSConfig); err != nil {
		return nil, err
	}
	if opt.MasterName != "" {
		return redis.NewFailoverClient(opt.Failover()), nil
	}
	opt.IsClusterMode = c.topology == "cluster" || len(opt.Addrs) > 1 ||
		c.topology == "auto" && u.Scheme != "unix" && isCluster(ctx, opt.Simple(), c.timeout)
	return redis.NewUniversalClient(opt), nil
}

// options returns those of a URL, whose query may name sentinels or further nodes. It changes the URL.
func options(u *url.URL) (*redis.UniversalOptions, error) {
	query := u.Query()
	take := func(name string) string {
		value := query.Get(name)
		query.Del(name)
		return value
	}
	more, opt := query["addr"], &redis.UniversalOptions{MasterName: take("master_name")}
	if query.Del("addr"); opt.MasterName != "" {
		opt.Username, opt.Password = take("username"), take("password")
	}
	u.RawQuery = query.Encode()
	one, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, err
	}
	opt.Addrs = append([]string{one.Addr}, more...)
	opt.DB, opt.Protocol, opt.TLSConfig = one.DB, one.Protocol, one.TLSConfig
	if opt.MasterName == "" {
		opt.Username, opt.Password = one.Username, one.Password
	} else { // the user of the URL is that of the sentinels
		opt.SentinelUsername, opt.SentinelPassword = one.Username, one.Password
	}
	return opt, nil
}

// isCluster asks a server whether it is part of a cluster. A server that does not tell counts as
// one server: core.Gate.Ping says more.
func isCluster(ctx context.Context, opt *redis.Options, timeout time.Duration) bool {
	client := redis.NewClient(opt)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := client.Info(ctx, "cluster").Result()
	if err == nil {
		return strings.Contains(info, "cluster_enabled:1")
	}
	err = client.Get(ctx, "hg:{ping}:none").Err()
	return err != nil && strings.HasPrefix(err.Error(), "MOVED ")
}

// tls adds the certificates of the files to the configuration of a URL, or nil for one without TLS.
func (c *connection) tls(cfg *tls.Config) error {
	if cfg == nil {
		cfg = new(tls.Config) // the files are read nevertheless
	}
	if c.ca != "" {
		text, err := os.ReadFile(c.ca)
		if err != nil {
			return usagef("--tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return usagef("--tls-ca: %s has no certificate", c.ca)
		}
	}
	if c.cert != "" || c.key != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return usagef("--tls-cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return nil
}
