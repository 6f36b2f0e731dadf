package main

import (
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

// address is a URL of Redis.
type address struct {
	text    string
	from    string // who says so
	timeout time.Duration
	*url.URL
}

// bad returns an error about the URL. It does not show it, because it may hold a password.
func (a *address) bad(err error) error {
	return usagef("%s: %s", a.from, strings.ReplaceAll(err.Error(), a.text, "the URL"))
}

// address returns the URL of the command line or of the environment.
func (c *connection) address() (*address, error) {
	a := &address{text: c.url, from: "--redis", timeout: c.timeout}
	if a.text == "" {
		a.text, a.from = os.Getenv(redisVariable), "$"+redisVariable
	}
	if a.text == "" {
		a.text = defaultRedis
	}
	var err error
	a.URL, err = url.Parse(a.text)
	if err != nil || !slices.Contains([]string{"redis", "rediss", "unix"}, a.Scheme) {
		return nil, usagef("%s is no URL such as %s", a.from, defaultRedis)
	}
	if !slices.Contains(topologies, c.topology) {
		return nil, usagef("--topology is %q: it must be %s", c.topology, strings.Join(topologies, ", "))
	}
	return a, nil
}

// dial returns a client of the URL.
func (c *connection) dial(ctx context.Context) (redis.UniversalClient, error) {
	a, err := c.address()
	if err != nil {
		return nil, err
	}
	files, err := c.tls()
	if err != nil {
		return nil, err
	}
	switch query := a.Query(); {
	case query.Has("master_name"):
		return failover(a, files)
	case c.topology == "cluster", query.Has("addr"):
		return cluster(a, files)
	}
	client, err := single(a, files)
	if err != nil {
		return nil, err
	}
	if c.topology == "auto" && a.Scheme != "unix" && isCluster(ctx, client, c.timeout) {
		_ = client.Close()
		return cluster(a, files)
	}
	return client, nil
}

// single returns a client of one server.
func single(a *address, files *tls.Config) (*redis.Client, error) {
	opt, err := redis.ParseURL(a.text)
	if err != nil {
		return nil, a.bad(err)
	}
	opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = a.timeout, a.timeout, a.timeout
	opt.MaintNotificationsConfig = noNotifications()
	opt.TLSConfig = merge(opt.TLSConfig, files)
	return redis.NewClient(opt), nil
}

// cluster returns a client of the cluster that the nodes of the URL belong to.
func cluster(a *address, files *tls.Config) (redis.UniversalClient, error) {
	opt, err := redis.ParseClusterURL(a.text)
	if err != nil {
		return nil, a.bad(err)
	}
	opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = a.timeout, a.timeout, a.timeout
	opt.MaintNotificationsConfig = noNotifications()
	opt.TLSConfig = merge(opt.TLSConfig, files)
	return redis.NewClusterClient(opt), nil
}

// failover returns a client of the primary that the sentinels of the URL name.
func failover(a *address, files *tls.Config) (redis.UniversalClient, error) {
	opt, err := redis.ParseFailoverURL(a.text)
	if err != nil {
		return nil, a.bad(err)
	}
	opt.ContextTimeoutEnabled, opt.DialerRetries = true, 1
	opt.DialTimeout, opt.ReadTimeout, opt.WriteTimeout = a.timeout, a.timeout, a.timeout
	opt.TLSConfig = merge(opt.TLSConfig, files)
	return redis.NewFailoverClient(opt), nil
}

func noNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// isCluster asks a server whether it is part of a cluster. A server that does not tell counts as
// one server: core.Gate.Ping says more.
func isCluster(ctx context.Context, client *redis.Client, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info, err := client.Info(ctx, "cluster").Result()
	if err == nil {
		return strings.Contains(info, "cluster_enabled:1")
	}
	err = client.Get(ctx, "hg:{ping}:none").Err()
	return err != nil && strings.HasPrefix(err.Error(), "MOVED ")
}

// tls returns the configuration of the files, or nil.
func (c *connection) tls() (*tls.Config, error) {
	if c.ca == "" && c.cert == "" && c.key == "" {
		return nil, nil
	}
	cfg := new(tls.Config)
	if c.ca != "" {
		text, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, usagef("--tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--tls-ca: %s has no certificate", c.ca)
		}
	}
	if c.cert != "" || c.key != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, usagef("--tls-cert and --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// merge adds the certificates of the files to the configuration of a URL, which has the name of the
// server.
func merge(of, files *tls.Config) *tls.Config {
	if of != nil && files != nil {
		of.RootCAs, of.Certificates = files.RootCAs, files.Certificates
	}
	return of
}
