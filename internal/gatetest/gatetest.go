// Package gatetest makes Gates, keys and policies for the tests of the packages beside core.
package gatetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/redisstore"
	"github.com/headgate/headgate/internal/redisstore/trips"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

const (
	// LongTimeout is a core.Config.Timeout that no test exceeds, even on a loaded machine.
	LongTimeout = 30 * time.Second
	// BusyTimeout is a core.Config.Timeout that a busy machine keeps, and that a test can wait for.
	BusyTimeout = time.Second
	// ShortTimeout is a core.Config.Timeout that a test waits for again and again.
	ShortTimeout = 100 * time.Millisecond
)

// Long reports whether to run the long forms of the tests.
func Long() bool { return os.Getenv("HEADGATE_TEST_LONG") != "" }

// Eventually returns once a condition holds.
func Eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(LongTimeout); !holds(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(giveUp) {
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// Key is core.NewKey.
func Key(t testing.TB, outermost string, inner ...string) core.Key {
	t.Helper()
	k, err := core.NewKey(outermost, inner...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Policy is core.NewPolicy.
func Policy(t testing.TB, cfg core.PolicyConfig) *core.Policy {
	t.Helper()
	p, err := core.NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Limited returns a policy of that name and algorithm.
func Limited(t testing.TB, name string, a core.Algorithm) *core.Policy {
	t.Helper()
	return Policy(t, core.PolicyConfig{Name: name, Algorithm: a})
}

// Frozen never refills, so that counts are exact at any time.
func Frozen(burst int64) core.TokenBucket { return core.TokenBucket{Burst: burst} }

// Memory returns a Gate in memory that ends with the test.
func Memory(t testing.TB, cfg core.Config) *core.Gate {
	t.Helper()
	g, err := core.NewMemory(cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, g)
	return g
}

// Redis returns a Gate on Redis that ends with the test. Its Timeout is LongTimeout if cfg has none.
func Redis(t testing.TB, client redis.UniversalClient, cfg core.Config) *core.Gate {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = LongTimeout
	}
	g, err := core.NewRedis(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, g)
	core.Inside(hub.Pass{}).StateNothing(g) // tests look at every key below the prefix
	return g
}

// closeAfter closes the Gate after the test, so that nothing of it runs beside later ones.
func closeAfter(t testing.TB, g *core.Gate) {
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = g.Close(ctx) // releases what the test holds; the server may have stopped
		ctx, cancel = context.WithTimeout(context.Background(), LongTimeout)
		defer cancel()
		_ = g.Close(ctx) // waits, because go-redis cannot close a connection that is being read
	})
}

// Each runs f on a Gate in memory and on one on every Redis, whose leases and filters go by a clock
// of the test. Decisions on Redis go by the server's clock.
func Each(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		c := core.NewManualClock(time.Now())
		f(t, Memory(t, core.Config{Clock: c.Now}), c)
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := core.NewManualClock(time.Now())
		client := s.Client(t)
		g := Redis(t, client, core.Config{Prefix: s.Prefix})
		h := core.Inside(hub.Pass{}).Of(g)
		store := redisstore.New(redisstore.Config{
			Config: trips.Config{Client: client, Timeout: LongTimeout, Tasks: h.Tasks}, Prefix: h.Prefix,
			Clock: func() int64 { return c.Now().UnixMicro() }, Script: redistest.Script, Probe: probe,
		})
		h.Leases, h.Filters = redisstore.NewLeases(store), redisstore.NewFilters(store)
		f(t, g, c)
	})
}

// probe asks whether a server decides, and leaves nothing there.
func probe(outermost string) request.Request {
	limit := core.Must(algorithm.NewTokenBucket(1, time.Second, 1))
	kind := request.KindOf(":probe", limit)
	return request.Request{Terms: algorithm.Terms{Op: algorithm.Peek}, Charges: []*request.Charge{{
		Kind: kind, Key: request.Key{Path: outermost + ":ping", Outer: len(outermost)},
		Limit: limit, Units: 1, Cost: limit.Cost(1),
	}}}
}

// Decide is Gate.Decide on a Gate that answers.
func Decide(t testing.TB, g *core.Gate, charges ...core.Charge) core.Decision {
	t.Helper()
	d, err := g.Decide(t.Context(), charges...)
	if err != nil || d.Cause != nil {
		t.Fatalf("Decide: %v, cause %v", err, d.Cause)
	}
	return d
}

// Peek is Gate.Peek on a Gate that answers.
func Peek(t testing.TB, g *core.Gate, charges ...core.Charge) core.Decision {
	t.Helper()
	d, err := g.Peek(t.Context(), charges...)
	if err != nil || d.Cause != nil {
		t.Fatalf("Peek: %v, cause %v", err, d.Cause)
	}
	return d
}

// Show formats a Decision.
func Show(d core.Decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "allowed %v by %v, cause %v, wait %v", d.Allowed, d.Source, d.Cause, d.RetryAfter())
	for _, r := range d.Results() {
		fmt.Fprintf(&b, "\n  %s: allowed %v, %d of %d used, %d remain, retry after %v",
			r.Policy.Name(), r.Allowed, r.Used, r.Limit, r.Remaining, r.RetryAfter)
	}
	return b.String()
}
