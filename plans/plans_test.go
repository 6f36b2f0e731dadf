package plans_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // tests stop servers
	redistest.Parallel()
	goleak.VerifyTestMain(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// twoPlans has limits that tell the plans apart.
const twoPlans = `
default: free
plans:
  free:
    limits: {api: {rate: 10, per: 1m}, tokens: {limit: 1000, calendar: month, in: Europe/Berlin}}
    caps: {streams: 2}
  pro:
    limits: {api: {rate: 100, per: 1m}, beta: unlimited}
    caps: {streams: 20}
`

func parse(t testing.TB, text string) *plans.Set {
	return core.Must(plans.ParseSet([]byte(text)))
}

func newBook(t testing.TB, cfg plans.Config) *plans.Book {
	t.Helper()
	if cfg.Set == nil && cfg.File == "" {
		cfg.Set = parse(t, twoPlans)
	}
	p := core.Must(plans.New(cfg))
	t.Cleanup(p.Close)
	return p
}

// limit returns the limit of a tenant under api.
func limit(t testing.TB, p *plans.Book, tenant string) core.Algorithm {
	t.Helper()
	plan := gatetest.Must(p.For(t.Context(), tenant))(t)
	return plan.Algorithm("api")
}

func expect(t testing.TB, p *plans.Book, tenant string, want core.Algorithm) {
	t.Helper()
	if got := limit(t, p, tenant); got != want {
		t.Errorf("%s has %v, want %v", tenant, got, want)
	}
}

// seen collects events.
type seen struct {
	mu  sync.Mutex
	all []plans.Event
}

func (s *seen) observe(_ context.Context, e core.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, *e.(*plans.Event))
}

// take returns the events of some operations since the last call, and forgets all others.
func (s *seen) take(ops ...plans.Op) (found []plans.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if slices.Contains(ops, e.Op) {
			found = append(found, e)
		}
	}
	s.all = nil
	return found
}

// directory is a Resolve that can fail.
type directory struct {
	mu    sync.Mutex
	plans map[string]string
	err   error
	calls atomic.Int64
}

func (d *directory) set(tenant, plan string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; tenant != "" {
		d.plans[tenant] = plan
	}
}

func (d *directory) resolve(_ context.Context, tenant string) (string, error) {
	d.calls.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.plans[tenant], d.err
}

var (
	free, pro = core.PerMinute(10), core.PerMinute(100)
	errDown   = errors.New("the directory is down")
)

func TestTenantsHaveTheLimitsOfTheirPlans(t *testing.T) {
	d := &directory{plans: map[string]string{"acme": "pro", "tenant with spaces": "pro", strings.Repeat("long", 50): "pro"}}
	p := newBook(t, plans.Config{Resolve: d.resolve})
	for tenant := range d.plans {
		expect(t, p, tenant, pro)
		if name, err := p.PlanName(t.Context(), tenant); name != "pro" || err != nil {
			t.Errorf("%s has plan %s, %v", tenant, name, err)
		}
	}
	expect(t, p, "nobody", free)
	if n := d.calls.Load(); n != 4 {
		t.Errorf("%d calls for 4 tenants", n)
	}
	plan := gatetest.Must(p.For(t.Context(), "acme"))(t)
	if l := plan.Algorithm("unmentioned"); l != nil {
		t.Errorf("a policy that no plan mentions has %v", l)
	}
	if limit, share, floor := plan.Cap("streams"); limit != 20 || share != 0 || floor != 0 {
		t.Errorf("cap %d, %d, %d", limit, share, floor)
	}
	if limit, share, floor := plan.Cap("unmentioned"); limit != 0 || share != 0 || floor != 0 {
		t.Errorf("a cap that no plan mentions: %d, %d, %d", limit, share, floor)
	}
	if plan, err := p.For(t.Context(), ""); plan != nil || !errors.Is(err, plans.ErrTenant) {
		t.Errorf("no tenant: %v, %v", plan, err)
	}
}

// Callers that ask for a tenant at the same time share a call of Resolve.
func TestResolveIsSharedAndCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{plans: map[string]string{"acme": "pro"}}
		p := newBook(t, plans.Config{TTL: 10 * time.Second, Resolve: func(ctx context.Context, tenant string) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return d.resolve(ctx, tenant)
		}})
		defer p.Close()
		for range 2 {
			before, began := d.calls.Load(), time.Now()
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { expect(t, p, "acme", pro) })
			}
			wg.Wait()
			if n, took := d.calls.Load()-before, time.Since(began); n != 1 || took != 100*time.Millisecond {
				t.Errorf("%d calls in %v", n, took)
			}
			expect(t, p, "acme", pro)
			time.Sleep(10 * time.Second)
		}
		d.set("acme", "free", nil)
		expect(t, p, "acme", free)
	})
}

// While Resolve fails, the last known plan holds, and nobody waits for more than the first failure.
func TestLastKnownPlanHoldsWhileResolveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s seen
		d := &directory{plans: map[string]string{"acme": "pro"}}
		p := newBook(t, plans.Config{TTL: 10 * time.Second, OnFailure: plans.OnFailureRefuse, Observe: s.observe, Resolve: func(ctx context.Context, tenant string) (string, error) {
			name, err := d.resolve(ctx, tenant)
			if err != nil {
				<-ctx.Done() // it hangs
			}
			return name, err
		}})
		defer p.Close()
		expect(t, p, "acme", pro)
		d.set("", "", errDown)
		time.Sleep(10 * time.Second)
		for i, want := range []time.Duration{300 * time.Millisecond, 0, 0} {
			began := time.Now()
			expect(t, p, "acme", pro)
			if took := time.Since(began); took != want {
				t.Errorf("decision %d waited %v, want %v", i, took, want)
			}
			time.Sleep(2 * time.Second)
		}
		if e := s.take(plans.OpResolve); len(e) == 0 || !errors.Is(e[0].Err, errDown) || e[0].Tenant != "acme" {
			t.Errorf("events %v", e)
		}
		if l, err := p.For(t.Context(), "stranger"); !errors.Is(err, errDown) {
			t.Errorf("a tenant that was never known: %v, %v", l, err)
		}
		d.set("acme", "free", nil)
		limit(t, p, "acme") // asks again, and does not wait
		synctest.Wait()
		expect(t, p, "acme", free)
	})
}

func TestDefaultPlanHoldsWhileResolveFails(t *testing.T) {
	for name, resolve := range map[string]func(context.Context, string) (string, error){
		"error":        func(context.Context, string) (string, error) { return "", errDown },
		"unknown plan": func(context.Context, string) (string, error) { return "gold", nil },
		"panic":        func(context.Context, string) (string, error) { panic("no directory") },
		"hangs": func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var s seen
				p := newBook(t, plans.Config{Resolve: resolve, Observe: s.observe})
				defer p.Close()
				expect(t, p, "acme", free)
				e := s.take(plans.OpResolve)
				if len(e) != 1 || name == "unknown plan" && !errors.Is(e[0].Err, plans.ErrUnknownPlan) {
					t.Errorf("events %v", e)
				}
				p = newBook(t, plans.Config{Resolve: resolve, OnFailure: plans.OnFailureRefuse})
				defer p.Close()
				if l, err := p.For(t.Context(), "acme"); err == nil {
					t.Errorf("it has %v", l)
				}
			})
		})
	}
}

// A Resolve that does not heed its context delays a decision, and does not stop it.
func TestResolveThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBook(t, plans.Config{Resolve: func(context.Context, string) (string, error) {
			time.Sleep(time.Hour)
			return "pro", nil
		}})
		defer p.Close()
		began := time.Now()
		expect(t, p, "acme", free)
		if took := time.Since(began); took != 1600*time.Millisecond {
			t.Errorf("it waited %v", took)
		}
	})
}

func TestCallerLeavesBeforeThePlanIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBook(t, plans.Config{Resolve: func(context.Context, string) (string, error) {
			time.Sleep(200 * time.Millisecond)
			return "pro", nil
		}})
		defer p.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := p.For(ctx, "acme"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		expect(t, p, "acme", pro)
	})
}

// A change while Resolve runs is not lost.
func TestRefreshWhileResolveRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{plans: map[string]string{}}
		p := newBook(t, plans.Config{Resolve: func(ctx context.Context, tenant string) (string, error) {
			name, err := d.resolve(ctx, tenant)
			time.Sleep(100 * time.Millisecond)
			return name, err
		}})
		defer p.Close()
		go func() { _, _ = p.PlanName(t.Context(), "acme") }()
		time.Sleep(50 * time.Millisecond)
		d.set("acme", "pro", nil)
		gatetest.NoError(t, p.Refresh(t.Context(), "acme"))
		time.Sleep(time.Second)
		expect(t, p, "acme", pro)
	})
}

// A tenant that nobody has asked for since a failure long ago is asked about again, and waited for.
func TestOldFailureIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &directory{plans: map[string]string{}}
		d.set("acme", "", errors.New("down"))
		p := newBook(t, plans.Config{Resolve: d.resolve})
		defer p.Close()
		expect(t, p, "acme", free)
		d.set("acme", "pro", nil)
		time.Sleep(time.Hour)
		expect(t, p, "acme", pro)
	})
}

// After Close, tenants that are known keep their plans, and those that are not evict none.
func TestClose(t *testing.T) {
	d := &directory{plans: map[string]string{"acme": "pro"}}
	p := newBook(t, plans.Config{Resolve: d.resolve, MaxTenants: 2})
	expect(t, p, "acme", pro)
	p.Close()
	p.Close()
	for i := range 10 {
		if _, err := p.For(t.Context(), strconv.Itoa(i)); !errors.Is(err, plans.ErrClosed) {
			t.Errorf("a tenant that is not known: %v", err)
		}
		if _, err := p.PlanName(t.Context(), strconv.Itoa(i)); !errors.Is(err, plans.ErrClosed) {
			t.Errorf("its plan's name: %v", err)
		}
	}
	expect(t, p, "acme", pro)
}

func TestConfigFaults(t *testing.T) {
	set := parse(t, twoPlans)
	for name, c := range map[string]struct {
		cfg  plans.Config
		want []string
	}{
		"nothing": {plans.Config{}, []string{"Config.File and Set are missing"}},
		"zero":    {plans.Config{Set: new(plans.Set)}, []string{"Config.Set is zero"}},
		"both":    {plans.Config{Set: set, File: "plans.yaml"}, []string{"Config.File and Set are both set"}},
		"no file": {plans.Config{File: "nowhere.yaml"}, []string{"nowhere.yaml: no such file"}},
		"all at once": {
			plans.Config{Set: set, OnFailure: 7, MaxTenants: -1, TTL: time.Millisecond, Timeout: time.Hour, Prefix: "a b",
				Resolve: new(directory).resolve, Subscription: new(customers).subscription},
			[]string{"Config.Resolve and Subscription are both set", "Config.OnFailure is 7", "Config.MaxTenants is -1", "Config.TTL is 1ms", "Config.Timeout is 1h0m0s", `Config.Prefix is "a b"`},
		},
		"names": {
			plans.Config{Set: set, Policies: []string{"api", "tokens"}, Caps: []string{"stream"}},
			[]string{"plans.free.caps.streams is not in Config.Caps", "plans.pro.limits.beta is not in Config.Policies", "plans.pro.caps.streams is not"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plans.New(c.cfg)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Errorf("%d faults: %v", len(lines), err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
		})
	}
}
