package core_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/bloom"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/lease"
	"github.com/headgate/headgate/internal/redistest"
)

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
	gatetest.Must(hub.Of(g).Leases.Acquire(t.Context(), "hg:{k}:brief:se7", dead))(t)
	release(t, <-enqueue(t, brief, user)) // acquired after the enqueued holder has expired
	paid, _, err := sem.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{tenant}}, core.Charge{Policy: limited(t, "p", frozen(1)), Key: user.Key, Cost: 1})
	if err != nil {
		t.Fatal(err)
	}
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
		cluster := c == "spublish" || c == "ssubscribe" || c == "sunsubscribe" || c == "cluster|slots"
		if c == "lpush" || c == "ltrim" || c == "lindex" || c == "lrange" || c == "type" {
			continue // package plans and the command use them, and test that they do
		}
		if !strings.Contains(stats, "cmdstat_"+c+":") && !cluster {
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
