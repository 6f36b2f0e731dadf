package core_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/lease"
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
		gatetest.Is(t, g.Ping(ctx), core.ErrMisconfigured, "OneServer on a cluster")
	})
}

// The permissions in docs/redis.md are enough for every operation of a Gate, a Semaphore and a Filter,
// and each one is needed.
func TestDocumentedPermissions(t *testing.T) {
	t.Parallel()
	page := gatetest.Must(os.ReadFile("../docs/redis.md"))(t)
	_, text, _ := strings.Cut(string(page), "\n## Permissions\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "resetchannels"}
	var commands []string
	for _, rule := range regexp.MustCompile("[+~&][a-z:*|]+").FindAllString(text, -1) {
		rules = append(rules, rule)
		if rule[0] == '+' {
			commands = append(commands, rule[1:])
		}
	}
	s := redistest.Start(t)
	admin := s.Client(t)
	do(t, admin, rules...)
	do(t, admin, "CONFIG", "RESETSTAT")
	g := redisGate(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }), core.Config{})
	worked(t, g.Ping(t.Context()))
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
	tenant, user := semaphore.Cap{Key: newKey(t, "k"), Limit: 2}, semaphore.Cap{Key: newKey(t, "k", "u"), Limit: 1}
	first := acquire(t, sem, tenant, user)
	second := enqueue(t, sem, tenant, user)
	eventually(t, "the Gate has subscribed", func() bool {
		return len(admin.PubSubChannels(t.Context(), "*").Val()) > 0
	})
	release(t, first)
	l := <-second
	worked(t, l.Extend(t.Context()))
	holders, _, err := sem.Holders(t.Context(), tenant.Key)
	if err != nil || len(holders) != 1 {
		t.Fatal(holders, err)
	}
	if n, err := sem.Evict(t.Context(), tenant.Key, holders[0].ID); n != 1 || err != nil {
		t.Error(n, err)
	}
	<-l.Lost()
	release(t, l)
	brief := newSemaphore(t, g, semaphore.Config{Name: "brief", TTL: time.Second})
	dead := lease.Request{
		ID: "dead", Channel: "none", Lease: time.Second.Microseconds(), Metadata: "-",
		Levels: []lease.Level{{Node: user.Key.String(), Limit: 1, Weight: 1}},
	}
	gatetest.Must(core.Inside(hub.Pass{}).Of(g).Leases.Acquire(t.Context(), "hg:{k}:brief:se7", dead))(t)
	release(t, <-enqueue(t, brief, user)) // acquired after the enqueued holder has expired
	paid, _, err := sem.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{tenant}}, core.Charge{Policy: limited(t, "p", frozen(1)), Key: user.Key, Cost: 1})
	noError(t, err)
	release(t, paid)
	held := charge(t, g, core.Charge{Policy: heldFor(t, time.Minute), Key: user.Key, Cost: 1})
	if _, err := held.Renew(); err != nil {
		t.Error(err)
	}
	settle(t, held, 2)
	raised := newPolicy(t, core.PolicyConfig{Name: "raised", Algorithm: frozen(1), Raisable: true, Ledger: spentIn})
	decide(t, g, core.Charge{Policy: raised, Key: user.Key, Cost: 1})
	adjust(t, g, core.Adjustment{ID: "a", Policy: raised, Key: user.Key, Raise: 1, Until: time.Now().Add(shortTimeout)})
	eventually(t, "the raise has ended", func() bool {
		d := peek(t, g, core.Charge{Policy: raised, Key: user.Key, Cost: core.NoCost})
		return d.At(0).Raised == 0
	})
	adjust(t, g, core.Adjustment{ID: "b", Policy: raised, Key: user.Key, Units: 1}) // drops it
	moved := limited(t, "moved", core.TokenBucket{Rate: 1000, Per: time.Second, Burst: 1000})
	three := []core.Charge{{Policy: limited(t, "p", frozen(9)), Key: user.Key, Cost: 1}, {Policy: limited(t, "q", frozen(9)), Key: user.Key, Cost: 1}, {Policy: moved, Key: user.Key, Cost: 1}}
	decide(t, g, three...)
	before := decide(t, g, three...)
	f := gatetest.Must(bloom.New(g, bloom.Config{Name: "f", Items: 10, FalsePositives: 0.01, Window: time.Hour}))(t)
	worked(t, f.Add(t.Context(), "a"))
	if found, err := f.Test(t.Context(), "a"); err != nil || !found[0] {
		t.Error(err)
	}
	if _, err := f.Stats(t.Context()); err != nil {
		t.Error(err)
	}
	worked(t, f.Reset(t.Context()))
	for _, err := range blocklist(t, g, limited(t, "block", core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})).All(t.Context()) {
		t.Error(err)
	}
	worked(t, g.Close(t.Context()))
	stats := gatetest.Must(admin.Info(t.Context(), "commandstats").Result())(t)
	for _, c := range commands {
		if c == "lpush" || c == "ltrim" || c == "lindex" || c == "lrange" || c == "type" {
			continue // package plans and the command use them, and test that they do
		}
		if !strings.Contains(stats, "cmdstat_"+c+":") && c != "cluster|slots" {
			t.Errorf("%s is not used", c)
		}
	}

	// Without MGET the script reads the values one by one. Without SETRANGE it writes bundles with
	// their TTL.
	do(t, admin, "ACL", "SETUSER", "app", "-mget", "-setrange")
	g = redisGate(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }), core.Config{})
	if d := decide(t, g, three...); !d.Allowed || d.At(0).Used != before.At(0).Used+1 || d.At(1).Used != before.At(1).Used+1 {
		t.Errorf("%s\nwith all permissions: %s", show(d), show(before))
	}
	for range 3 {
		decide(t, g, three[2])
	}
}

// Proxies and services that do not know SCRIPT, HELLO, CLIENT or SELECT serve everything, also after
// they have lost their scripts.
func TestServerWithFewCommands(t *testing.T) {
	t.Parallel()
	const script = "script-of-the-test"
	args := []string{"--rename-command", "SCRIPT", script}
	for _, name := range []string{"FUNCTION", "HELLO", "CLIENT", "SELECT"} {
		args = append(args, "--rename-command", name, "")
	}
	s := redistest.Start(t, args...)
	admin := s.Client(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, DisableDenialCache: true})
	worked(t, g.Ping(t.Context()))
	c := core.Charge{Policy: limited(t, "p", core.FixedWindow{Limit: 5, Window: time.Hour}), Key: newKey(t, "k")}
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour})
	filter := gatetest.Must(bloom.New(g, bloom.Config{Name: "f", Items: 1000, FalsePositives: 0.001}))(t)
	events := gatetest.Must(once.New(g, once.Config{Name: "o", Window: time.Hour}))(t)
	for i := range 10 {
		forget := func() { do(t, admin, script, "FLUSH") }
		forget()
		if d := decide(t, g, c); d.Source != core.SourceRedis || d.Allowed != (i < 5) {
			t.Errorf("decision %d: %s from %v", i, show(d), d.Source)
		}
		forget()
		l := acquire(t, sem, semaphore.Cap{Key: c.Key, Limit: 1})
		if l.Token() == 0 {
			t.Error("Redis did not grant the slot")
		}
		forget()
		if isNew, err := filter.TestAndAdd(t.Context(), fmt.Sprint(i)); err != nil || !isNew[0] {
			t.Error(isNew, err)
		}
		forget()
		release(t, l)
		forget()
		ran := false
		err := events.Do(t.Context(), newKey(t, fmt.Sprint(i)), 0, func(context.Context) error {
			ran = true
			return nil
		})
		if err != nil || !ran {
			t.Error(ran, err)
		}
	}
}
