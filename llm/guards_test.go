package llm_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// The dialects are for any Guard. These are the Guards without a Meter that test them.

// generous bounds what a slow machine may take.
const generous = 30 * time.Second

func aClock() *core.ManualClock { return core.NewManualClock(time.UnixMicro(1_800_000_000_000_000)) }

func memory(t *testing.T, c *core.ManualClock) *core.Gate {
	t.Helper()
	return made(t)(core.NewMemory(core.Config{Clock: c.Now}))
}

// dead returns a gate whose Redis refuses connections.
func dead(t *testing.T) *core.Gate {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	return made(t)(core.NewRedis(client, core.Config{}))
}

func made(t *testing.T) func(*core.Gate, error) *core.Gate {
	return func(g *core.Gate, err error) *core.Gate {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
}

func eachGate(t *testing.T, f func(t *testing.T, gate *core.Gate)) {
	t.Run("memory", func(t *testing.T) { f(t, made(t)(core.NewMemory(core.Config{}))) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		f(t, made(t)(core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: generous})))
	})
}

func guard(t *testing.T, cfg nethttp.Config) *nethttp.Guard {
	t.Helper()
	g, err := nethttp.NewGuard(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func policyOf(t *testing.T, cfg core.PolicyConfig) *core.Policy {
	t.Helper()
	p, err := core.NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// rules returns a rule by the client's address for each policy.
func rules(t *testing.T, policies ...core.PolicyConfig) (all []nethttp.Rule) {
	t.Helper()
	for _, p := range policies {
		all = append(all, nethttp.Rule{Policy: policyOf(t, p), Key: keyfunc.RemoteIP()})
	}
	return all
}

func bans(t *testing.T, b core.Block) *core.Policy {
	t.Helper()
	return policyOf(t, core.PolicyConfig{Name: "bans", Algorithm: b})
}

// crowded returns a handler with caps of two requests a user and three of all, at which these users
// have requests that run. Each user may make 10 requests.
func crowded(t *testing.T, cfg nethttp.Config, users ...string) http.Handler {
	t.Helper()
	cfg.Gate = memory(t, aClock())
	slots, err := semaphore.New(cfg.Gate, semaphore.Config{Name: "streams", MaxWaiters: 1})
	if err != nil {
		t.Fatal(err)
	}
	slot := nethttp.Slot{}
	if cfg.Slot != nil {
		slot = *cfg.Slot
	}
	user := keyfunc.Must(keyfunc.Header("X-User"))
	slot.Semaphore, slot.Caps = slots, []nethttp.Cap{
		{Name: "tenant", Key: keyfunc.Must(keyfunc.Static("all")), Limit: 3, Global: true},
		{Name: "streams", Key: user, Limit: 2},
	}
	cfg.Slot = &slot
	requests := core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Burst: 10}}
	cfg.Rules = []nethttp.Rule{{Policy: policyOf(t, requests), Key: user}}
	entered, end := make(chan struct{}), make(chan struct{})
	h := guard(t, cfg).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-end
	}))
	var running sync.WaitGroup
	t.Cleanup(func() {
		close(end)
		running.Wait()
	})
	for _, user := range users {
		running.Go(func() { get(h, as(user)) })
		<-entered
	}
	return h
}

func as(user string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("X-User", user) }
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func get(h http.Handler, change ...func(*http.Request)) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// observed returns a Config.Observe that is told of admissions only.
func observed(f func(*nethttp.Admission)) func(context.Context, core.Event) {
	return func(_ context.Context, e core.Event) { f(e.(*nethttp.AdmissionEvent).Admission) }
}
