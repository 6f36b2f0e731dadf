package core_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

func TestRejectedCommandsAreMisconfiguration(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx := t.Context()
	admin := s.Client(t)
	do := func(args ...any) {
		t.Helper()
		noError(t, admin.Do(ctx, args...).Err())
	}
	// This decision connects, so that the server rejects commands on existing connections as well
	// as on new ones.
	do("ACL", "SETUSER", "app", "on", ">secret", "~hg:*", "+ping", "+hello", "+client", "+info", "+evalsha", "+eval", "+time", "+get", "+set", "+del",
		"+getrange", "+setrange", "+pexpire")
	as := func(user, password string) redis.UniversalClient {
		return s.Client(t, func(o *redis.Options) { o.Username, o.Password = user, password })
	}
	app := as("app", "secret")
	g := redisGate(t, app, core.Config{Prefix: "hg"})
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), OnFailure: core.FailOpen}), Key: newKey(t, "k"), Cost: 1}
	if d := decide(t, g, c); d.Source != core.SourceRedis || !d.Allowed {
		t.Fatalf("%s", show(d))
	}
	if err := g.Ping(ctx); err != nil {
		t.Errorf("Ping with all permissions: %v", err)
	}
	do("ACL", "SETUSER", "noset", "on", ">secret", "~hg:*", "+ping", "+hello", "+client", "+evalsha", "+eval", "+time", "+get")
	do("ACL", "SETUSER", "nokey", "on", ">secret", "~other:*", "+@all")
	do("ACL", "SETUSER", "noscript", "on", ">secret", "~hg:*", "+ping", "+hello", "+client")
	do("ACL", "SETUSER", "default", "resetpass", ">topsecret")

	for name, tt := range map[string]struct {
		client redis.UniversalClient
		words  string
	}{
		"no password":    {s.Client(t), "password"},
		"wrong password": {as("app", "guess"), "does not accept"},
		"no SET":         {as("noset", "secret"), "lacks a permission"},
		"no key":         {as("nokey", "secret"), "lacks a permission"},
		"no script":      {as("noscript", "secret"), "lacks a permission"},
	} {
		t.Run(name, func(t *testing.T) {
			g := redisGate(t, tt.client, core.Config{Prefix: "hg"})
			err := g.Ping(ctx)
			if !errors.Is(err, core.ErrMisconfigured) || !strings.Contains(fmt.Sprint(err), tt.words) {
				t.Errorf("Ping: %v", err)
			}
			for range 5 {
				d, err := g.Decide(ctx, c)
				if !errors.Is(err, core.ErrMisconfigured) || d.Allowed || d.Source != core.SourceClosed {
					t.Errorf("%s from %v, %v", show(d), d.Source, err)
				}
			}
		})
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("healthy", func(t *testing.T) {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) {
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			worked(t, g.Ping(ctx))
			for _, k := range client.Keys(ctx, s.Prefix+"*").Val() {
				if ttl := client.PTTL(ctx, k).Val(); ttl <= 0 || ttl > 10*time.Second {
					t.Errorf("%s has TTL %v", k, ttl)
				}
			}
		})
		worked(t, memoryGate(t, core.Config{}).Ping(ctx))
	})
	fails := func(t *testing.T, g *core.Gate, words string, misconfigured bool) {
		t.Helper()
		if err := g.Ping(ctx); !strings.Contains(fmt.Sprint(err), words) || errors.Is(err, core.ErrMisconfigured) != misconfigured {
			t.Errorf("%v", err)
		}
	}
	t.Run("connection refused", func(t *testing.T) {
		s := redistest.Start(t)
		s.Kill()
		fails(t, redisGate(t, s.Client(t), core.Config{Timeout: 5 * time.Second}), "nothing listens", false)
	})
	t.Run("stopped", func(t *testing.T) {
		s := redistest.Start(t)
		client := s.Client(t)
		warm(t, client)
		s.Stop()
		fails(t, redisGate(t, client, core.Config{Timeout: shortTimeout}), "does not answer in time", false)
		s.Continue()
	})
	t.Run("closed client", func(t *testing.T) {
		s := redistest.Start(t)
		client := s.Client(t)
		noError(t, client.Close())
		fails(t, redisGate(t, client, core.Config{}), "client is closed", false)
	})
	t.Run("replica", func(t *testing.T) {
		master, s := redistest.Start(t), redistest.Start(t)
		host, port, _ := strings.Cut(master.Addr, ":")
		client := s.Client(t)
		noError(t, client.ReplicaOf(ctx, host, port).Err())
		g := redisGate(t, client, core.Config{})
		// It may be loading until the first synchronisation.
		eventually(t, "it has loaded", func() bool { return !strings.Contains(fmt.Sprint(g.Ping(ctx)), "loading") })
		fails(t, g, "connect to the primary", false)
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 1)
		fails(t, redisGate(t, cluster.Nodes[0].Client(t), core.Config{}), "redis.NewClusterClient", true)
		g := redisGate(t, cluster.Client(t), core.Config{Topology: core.TopologyOneServer})
		if err := g.Ping(ctx); !errors.Is(err, core.ErrMisconfigured) {
			t.Errorf("OneServer on a cluster: %v", err)
		}
	})
}
