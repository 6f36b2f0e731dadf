package nethttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// clock is a clock that the test moves.
type clock struct{ *core.ManualClock }

func newClock() *clock { return &clock{core.NewManualClock(time.UnixMicro(1_800_000_000_000_000))} }

func (c *clock) advance(d time.Duration) { c.Advance(d) }

func memory(t *testing.T, c *clock) *core.Gate {
	return gatetest.Memory(t, core.Config{Clock: c.Now})
}

// served returns a handler behind the Guard of cfg, which answers "ok". The Gate is in memory if cfg
// has none.
func served(t *testing.T, cfg nethttp.Config) http.Handler {
	t.Helper()
	if cfg.Gate == nil {
		cfg.Gate = memory(t, newClock())
	}
	return guard(t, cfg).Handler(http.HandlerFunc(ok))
}

// dead returns a gate whose Redis refuses connections.
func dead(t *testing.T) *core.Gate {
	t.Helper()
	return deadWith(t, core.Config{})
}

func deadWith(t *testing.T, cfg core.Config) *core.Gate {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	return core.Must(core.NewRedis(client, cfg))
}

func policy(t *testing.T, cfg core.PolicyConfig) *core.Policy {
	return core.Must(core.NewPolicy(cfg))
}

func guard(t *testing.T, cfg nethttp.Config) *nethttp.Guard {
	return core.Must(nethttp.NewGuard(cfg))
}

// observed returns a Config.Observe that is told of admissions only.
func observed(f func(*nethttp.Admission)) func(context.Context, core.Event) {
	return func(_ context.Context, e core.Event) { f(e.(*nethttp.AdmissionEvent).Admission) }
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
	b := gatetest.Must(io.ReadAll(r.Body))(t)
	return string(b)
}

// expect compares the status and all headers that state limits. A header without a value must be
// missing.
func expect(t *testing.T, r *http.Response, status int, headers map[string]string) {
	t.Helper()
	gatetest.Equal(t, r.StatusCode, status, "status")
	for _, name := range []string{
		"RateLimit", "RateLimit-Policy", "Retry-After", "Cache-Control", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset",
	} {
		gatetest.Equal(t, strings.Join(r.Header.Values(name), " | "), headers[name], "%s", name)
	}
}

func TestHeaders(t *testing.T) {
	never := core.TokenBucket{Burst: 2}
	two := []core.PolicyConfig{
		{Name: "burst", Algorithm: core.TokenBucket{Rate: 10, Per: time.Second, Burst: 20}},
		{Name: "daily", Algorithm: core.TokenBucket{Rate: 1000, Per: 24 * time.Hour, Burst: 1000}},
	}
	for _, c := range []struct {
		name     string
		dialect  nethttp.Dialect
		policies []core.PolicyConfig
		spend    int // requests before the one that is checked
		status   int
		want     map[string]string
	}{
		{"two policies", nethttp.Draft11{}, two, 2, 200, map[string]string{
			"RateLimit-Policy": `"burst";q=20;w=2, "daily";q=1000;w=86400`,
			"RateLimit":        `"burst";r=17;t=1, "daily";r=997;t=87`,
		}},
		{"never refills, allowed", nethttp.Draft11{}, []core.PolicyConfig{{Name: "gift", Algorithm: never}}, 0, 200,
			map[string]string{"RateLimit-Policy": `"gift";q=2`, "RateLimit": `"gift";r=1`}},
		{"never refills, denied", nethttp.Draft11{}, []core.PolicyConfig{{Name: "gift", Algorithm: never}}, 2, 429,
			map[string]string{"RateLimit-Policy": `"gift";q=2`, "RateLimit": `"gift";r=0`, "Cache-Control": "no-store"}},
		{"legacy delta, allowed: the smallest part left", nethttp.Legacy{}, two, 2, 200, map[string]string{
			"X-RateLimit-Limit": "20", "X-RateLimit-Remaining": "17", "X-RateLimit-Reset": "1"}},
		{"legacy, never refills", nethttp.Legacy{Epoch: true}, []core.PolicyConfig{{Name: "gift", Algorithm: never}}, 0, 200,
			map[string]string{"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": "1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := served(t, nethttp.Config{Dialect: c.dialect, Rules: rules(t, c.policies...)})
			for range c.spend {
				get(h)
			}
			expect(t, get(h), c.status, c.want)
		})
	}
	t.Run("legacy epoch of a window", func(t *testing.T) {
		c := newClock()
		h := served(t, nethttp.Config{
			Gate: memory(t, c), Dialect: nethttp.Legacy{Epoch: true},
			Rules: rules(t, core.PolicyConfig{Name: "hourly", Algorithm: core.FixedWindow{Limit: 2, Window: time.Hour}}),
		})
		want := strconv.FormatInt(c.Now().Truncate(time.Hour).Add(time.Hour).Unix(), 10)
		for range 3 { // one is denied
			gatetest.Equal(t, get(h).Header.Get("X-RateLimit-Reset"), want, "X-RateLimit-Reset")
			c.advance(7654321 * time.Microsecond)
		}
	})
}

func TestNoKey(t *testing.T) {
	fails := func(err error) keyfunc.Func { return func(*http.Request) (string, error) { return "", err } }
	broken, empty, ambiguous := fails(errors.New("secret detail")), fails(nil), fails(keyfunc.ErrAmbiguous)
	both := fails(errors.Join(keyfunc.ErrNoKey, keyfunc.ErrAmbiguous))
	for _, c := range []struct {
		name   string
		rule   nethttp.Rule
		scope  keyfunc.Func
		cap    keyfunc.Func
		status int
	}{
		{"missing header", nethttp.Rule{Key: keyfunc.Must(keyfunc.Header("X-Api-Key"))}, nil, nil, 400},
		{"missing header, skipped", nethttp.Rule{Key: keyfunc.Must(keyfunc.Header("X-Api-Key")), NoKey: nethttp.NoKeySkip}, nil, nil, 200},
		{"empty key", nethttp.Rule{Key: empty}, nil, nil, 400},
		{"empty key, skipped", nethttp.Rule{Key: empty, NoKey: nethttp.NoKeySkip}, nil, nil, 200},
		{"missing scope", nethttp.Rule{Key: keyfunc.RemoteIP()}, keyfunc.Must(keyfunc.Header("X-Tenant")), nil, 400},
		{"missing scope, the key may be missing", nethttp.Rule{Key: keyfunc.RemoteIP(), NoKey: nethttp.NoKeySkip}, keyfunc.Must(keyfunc.Header("X-Tenant")), nil, 400},
		{"empty scope", nethttp.Rule{Key: keyfunc.RemoteIP()}, empty, nil, 400},
		{"failing key", nethttp.Rule{Key: broken, NoKey: nethttp.NoKeySkip}, nil, nil, 500},
		{"failing scope", nethttp.Rule{Key: keyfunc.RemoteIP()}, broken, nil, 500},
		{"negative cost", nethttp.Rule{Key: keyfunc.RemoteIP(), Cost: func(*http.Request) int64 { return -1 }}, nil, nil, 500},
		{"skipped, and no scope", nethttp.Rule{Key: broken, Skip: func(*http.Request) bool { return true }}, empty, nil, 200},
		// The handler may read the value that the client is limited by.
		{"ambiguous key", nethttp.Rule{Key: ambiguous, NoKey: nethttp.NoKeySkip}, nil, nil, 400},
		{"missing and ambiguous key", nethttp.Rule{Key: both, NoKey: nethttp.NoKeySkip}, nil, nil, 400},
		{"ambiguous scope", nethttp.Rule{Key: keyfunc.RemoteIP(), NoKey: nethttp.NoKeySkip}, ambiguous, nil, 400},
		{"ambiguous key of a cap", nethttp.Rule{Key: empty, NoKey: nethttp.NoKeySkip}, nil, ambiguous, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rule.Policy = policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)})
			var seen *nethttp.Admission
			cfg := nethttp.Config{
				Gate: memory(t, newClock()), Rules: []nethttp.Rule{c.rule}, Scope: c.scope,
				Observe: observed(func(a *nethttp.Admission) { seen = a }),
			}
			if c.cap != nil {
				cfg.Slot = &nethttp.Slot{Semaphore: newSemaphore(t, cfg.Gate, semaphore.Config{}), Caps: []nethttp.Cap{{Key: c.cap, Limit: 1}}}
			}
			h := served(t, cfg)
			for range 3 { // a skipped request is not counted, and a refused one has no key
				r := get(h)
				gatetest.Need(t, r.StatusCode, c.status, "status")
				s := body(t, r)
				if strings.Contains(s, "secret") || strings.Contains(s, "X-Api-Key") {
					t.Errorf("the body reveals: %s", s)
				}
				gatetest.Equal(t, strings.Contains(s, "ambiguous"), errors.Is(seen.Err(), keyfunc.ErrAmbiguous), "%s", s)
			}
			gatetest.Equal(t, seen.Err() != nil, c.status != 200, "Err is %v", seen.Err())
			if d := seen.Decision(); d.Len() != 0 || d.Source != core.SourceNone || d.Allowed != (c.status == 200) {
				t.Errorf("%d results from %v, allowed %v", d.Len(), d.Source, d.Allowed)
			}
		})
	}
}

func TestNewGuardFaults(t *testing.T) {
	p := policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)})
	gate := memory(t, newClock())
	rule := []nethttp.Rule{{Policy: p, Key: keyfunc.RemoteIP()}}
	other := newSemaphore(t, memory(t, newClock()), semaphore.Config{})
	for name, c := range map[string]struct {
		cfg  nethttp.Config
		want []string
	}{
		"rules": {nethttp.Config{Rules: []nethttp.Rule{
			{Policy: p, Key: keyfunc.RemoteIP()}, {Policy: p, NoKey: 7}, {Key: keyfunc.RemoteIP()}, {Policy: new(core.Policy), Key: keyfunc.RemoteIP()},
		}}, []string{
			"nethttp: Config.Gate is nil", `Config.Rules[1].Policy is named "p", like that of another rule`, "Config.Rules[1].Key is nil",
			"Config.Rules[1].NoKey is 7", "Config.Rules[2].Policy is missing", "Config.Rules[3].Policy",
		}},
		"no rules": {nethttp.Config{Gate: gate}, []string{"Config.Rules is empty"}},
		"caps": {nethttp.Config{Gate: gate, Rules: rule, MaxDelay: -1, LongestWait: -1, Slot: &nethttp.Slot{
			MaxWait: -1, Caps: []nethttp.Cap{
				{Name: "p", Key: keyfunc.RemoteIP(), Limit: 1, Floor: 1}, {Name: "a b", Share: 1001, Floor: -1},
			},
		}}, []string{
			"Config.MaxDelay is -1ns", "Config.LongestWait is -1ns: it must not be negative",
			"Config.Slot.Semaphore is nil", "Config.Slot.MaxWait is -1ns",
			`Config.Slot.Caps[0].Name is "p", like that of a rule`, "Config.Slot.Caps[1].Key is nil",
			"Config.Slot.Caps[1].Limit is 0", `Config.Slot.Caps[1].Name is "a b"`,
			"Config.Slot.Caps[1].Share is 1001", "Config.Slot.Caps[1].Floor is -1",
			"Config.Slot.Caps[0].Floor is 1: it must be between 0 and 0",
		}},
		"another Gate": {nethttp.Config{Gate: gate, Rules: rule, Slot: &nethttp.Slot{Semaphore: other}}, []string{
			"Semaphore is of another Gate", "Caps has 0 entries",
		}},
		"blocks": {nethttp.Config{Gate: gate, Blocks: []nethttp.BlockRule{
			{}, {Policy: p, NoKey: 7},
			{Policy: bans(t, core.Block{Strikes: 1, Within: 1e9, For: 1e9}), Forget: nethttp.ForgetOn(200)},
			{Policy: bans(t, core.Block{Strikes: 1, Within: 1e9, For: 1e9})},
		}}, []string{
			"Blocks[0].Policy is missing", "Blocks[0].Key is nil", "Blocks[1].Policy has the algorithm core.TokenBucket",
			"Blocks[1].NoKey is 7", "Blocks[2] forgets strikes", `Blocks[3].Policy is named "bans"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nethttp.NewGuard(c.cfg)
			for _, want := range c.want {
				gatetest.Contains(t, fmt.Sprint(err), want, "error")
			}
		})
	}
	for status, valid := range map[int]bool{0: true, 400: true, 402: true, 499: true, -1: false, 200: false, 399: false, 500: false} {
		_, err := nethttp.NewGuard(nethttp.Config{Gate: gate, DenyAllStatus: status, Rules: rule})
		gatetest.Equal(t, err == nil, valid, "DenyAllStatus %d is valid: %v", status, err)
	}
	if _, err := nethttp.Limit(gate, "hello", core.TokenBucket{}, keyfunc.RemoteIP()); err == nil || !strings.Contains(err.Error(), "TokenBucket.Burst is 0") {
		t.Errorf("Limit: %v", err)
	}
}

// An adapter may call Admit without a check. It must neither panic nor admit uncounted requests.
func TestAdmitOfInvalidGuardRefuses(t *testing.T) {
	for name, g := range map[string]nethttp.Admitter{
		"nil": (*nethttp.Guard)(nil), "zero": new(nethttp.Guard), "nil Replay": (*nethttp.Replay)(nil), "zero Replay": new(nethttp.Replay),
	} {
		t.Run(name, func(t *testing.T) {
			r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			a := g.Admit(r)
			a.WriteHeaders(w.Header())
			g.Refuse(w, r, &a.Admission)
			a.Finish(r, a.Status())
			if a.Allowed() || a.Err() == nil || w.Code != http.StatusInternalServerError {
				t.Errorf("allowed %v, %v, status %d", a.Allowed(), a.Err(), w.Code)
			}
			g, ok := g.(*nethttp.Guard)
			if !ok {
				return
			}
			gatetest.Fails(t, gatetest.Err(g.Charges(r)), "Charges returned no error")
			gatetest.Fails(t, gatetest.Err(g.Caps(r)), "Caps returned no error")
		})
	}
}

func TestEnumerationsHaveNames(t *testing.T) {
	for want, got := range map[string]string{
		"refuse": nethttp.NoKeyRefuse.String(), "skip": nethttp.NoKeySkip.String(), "unknown": nethttp.NoKey(200).String(),
	} {
		gatetest.Equal(t, got, want, "got")
	}
}

// A handler need not know whether a Guard or a Replay has left its request alone.
func TestHandlersOfSkippedRequests(t *testing.T) {
	skipping := counted(t, func(cfg *nethttp.Config) { cfg.Skip = func(*http.Request) bool { return true } })
	cfg := nethttp.ReplayConfig{Once: newOnce(t, memory(t, newClock())), ID: byID, NoID: nethttp.NoKeySkip}
	for name, g := range map[string]nethttp.Admitter{
		"Guard": skipping, "Replay": core.Must(nethttp.NewReplay(nil, cfg)),
		"Replay around a Guard": core.Must(nethttp.NewReplay(skipping, cfg)),
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a := nethttp.AdmissionFromContext(r.Context())
				a.Fail()
				if a.Written() != 0 || a.Lease() != nil || a.Plan() != nil || a.Decision().Len() != 0 {
					t.Errorf("%+v", a)
				}
			})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			gatetest.Equal(t, w.Code, http.StatusOK, "status")
		})
	}
}

type testKey struct{}

// The ResponseWriter of a request is wrapped only if a rule depends on the response.
func TestPlainRequestKeepsItsWriter(t *testing.T) {
	for _, settles := range []bool{false, true} {
		g := counted(t, func(cfg *nethttp.Config) {
			if settles {
				cfg.Rules[0].Settle = nethttp.RefundServerErrors
			}
		})
		given := httptest.NewRecorder()
		g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			gatetest.Equal(t, w != given, settles, "the handler has another ResponseWriter")
		})).ServeHTTP(given, httptest.NewRequest("GET", "/", nil))
	}
}

// An admission makes contexts that do not depend on each other, and they end with their parents.
func TestWithContext(t *testing.T) {
	gate := core.Must(core.NewMemory(core.Config{}))
	g := core.Must(nethttp.Limit(gate, "p", core.PerHour(1), keyfunc.RemoteIP()))
	r := httptest.NewRequest("GET", "/", nil)
	a := g.Admit(r)
	ctx, cancel := context.WithCancel(r.Context())
	first := a.WithContext(ctx)
	second := a.WithContext(context.WithValue(first, testKey{}, "value"))
	for _, c := range []context.Context{first, second} {
		gatetest.Equal(t, nethttp.AdmissionFromContext(c), &a.Admission, "another admission")
	}
	if first.Value(testKey{}) != nil || second.Value(testKey{}) != "value" {
		t.Error("the second context changed the first")
	}
	child, cancelChild := context.WithCancel(second)
	defer cancelChild()
	cancel()
	<-child.Done()
	if first.Err() == nil || second.Err() == nil {
		t.Error("a context outlives its parent")
	}
}

// Two guards with legacy headers state the smaller part left.
func TestStackedGuardsWithLegacyHeaders(t *testing.T) {
	gate := memory(t, newClock())
	of := func(name string, limit int64) func(http.Handler) http.Handler {
		return guard(t, nethttp.Config{
			Gate: gate, Dialect: nethttp.Legacy{}, Rules: rules(t, core.PolicyConfig{Name: name, Algorithm: core.PerMinute(limit)}),
		}).Handler
	}
	few, many := of("few", 2), of("many", 100)
	for _, h := range []http.Handler{few(many(http.HandlerFunc(ok))), many(few(http.HandlerFunc(ok)))} {
		gatetest.Equal(t, get(h).Header.Get("X-RateLimit-Limit"), "2", "X-RateLimit-Limit")
	}
}
