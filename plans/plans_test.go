package plans_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
	"github.com/headgate/headgate/keyfunc"
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
	gatetest.Equal(t, limit(t, p, tenant), want, "%s has", tenant)
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
		if now, err := p.Subscription(t.Context(), tenant); now.Plan != "pro" || err != nil {
			t.Errorf("%s has plan %s, %v", tenant, now.Plan, err)
		}
	}
	expect(t, p, "nobody", free)
	gatetest.Equal(t, d.calls.Load(), 4, "calls for 4 tenants")
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
			gatetest.Equal(t, time.Since(began), want, "decision %d waited", i)
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
		gatetest.Equal(t, time.Since(began), 1600*time.Millisecond, "it waited")
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
		gatetest.Is(t, gatetest.Err(p.For(ctx, "acme")), context.DeadlineExceeded, "got")
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
		go func() { _, _ = p.Subscription(t.Context(), "acme") }()
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
		gatetest.Is(t, gatetest.Err(p.For(t.Context(), strconv.Itoa(i))), plans.ErrClosed, "a tenant that is not known")
		gatetest.Is(t, gatetest.Err(p.Subscription(t.Context(), strconv.Itoa(i))), plans.ErrClosed, "its plan's name")
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
	} {
		t.Run(name, func(t *testing.T) {
			_, err := plans.New(c.cfg)
			if err == nil {
				t.Fatal("no error")
			}
			lines := strings.Split(err.Error(), "\n")
			gatetest.Equal(t, len(lines), len(c.want), "faults: %v", err)
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
		})
	}
}

const levels = `
default: free
plans:
  free: {limits: {api: {rate: 10, per: 1m}, org-month: {rate: 0, burst: 1000}}, caps: {streams: 2}}
  pro: {limits: {api: {rate: 100, per: 1m}, org-month: {rate: 0, burst: 9000}}, caps: {streams: 20}}
  team: {limits: {team-day: {rate: 0, burst: 50}}, caps: {streams: {share: 3}}}
  vip: {limits: {api: {rate: 500, per: 1m}}}
  empty: {}
`

// In a chain the nearest tenant that names a policy or a cap decides on it.
func TestChain(t *testing.T) {
	frozen := func(n int64) core.Algorithm { return core.TokenBucket{Burst: n} }
	book := newBook(t, plans.Config{Set: parse(t, levels), Resolve: func(_ context.Context, tenant string) (string, error) {
		if tenant == "nobody" || tenant == "stranger" {
			return "", nil
		}
		return tenant, nil
	}})
	setOverride(t, book, "vip", plans.Override{Limits: map[string]core.Algorithm{"team-day": frozen(70)}})
	for name, c := range map[string]struct {
		outermost    string
		inner        []string
		api          core.Algorithm
		month, day   core.Algorithm
		limit, share int64
	}{
		"one":              {"pro", nil, core.PerMinute(100), frozen(9000), nil, 20, 0},
		"one without":      {"nobody", nil, core.PerMinute(10), frozen(1000), nil, 2, 0},
		"inner without":    {"pro", []string{"nobody", "stranger"}, core.PerMinute(100), frozen(9000), nil, 20, 0},
		"inner name empty": {"pro", []string{"", "team"}, core.PerMinute(100), frozen(9000), frozen(50), 0, 3},
		"team":             {"pro", []string{"team"}, core.PerMinute(100), frozen(9000), frozen(50), 0, 3},
		"team and user":    {"pro", []string{"team", "vip"}, core.PerMinute(500), frozen(9000), frozen(70), 0, 3},
		"user and team":    {"pro", []string{"vip", "team"}, core.PerMinute(500), frozen(9000), frozen(50), 0, 3},
		"outermost default": {
			"nobody", []string{"vip"}, core.PerMinute(500), frozen(1000), frozen(70), 2, 0,
		},
		"plan that names nothing": {"empty", []string{"nobody"}, nil, nil, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			plan := gatetest.Must(book.For(t.Context(), c.outermost, c.inner...))(t)
			for policy, want := range map[string]core.Algorithm{"api": c.api, "org-month": c.month, "team-day": c.day} {
				gatetest.Equal(t, plan.Algorithm(policy), want, "%s is", policy)
			}
			if limit, share, floor := plan.Cap("streams"); limit != c.limit || share != c.share || floor != 0 {
				t.Errorf("cap %d, share %d, floor %d", limit, share, floor)
			}
		})
	}
	if plan, err := book.For(t.Context(), "", "vip"); plan != nil || !errors.Is(err, plans.ErrTenant) {
		t.Errorf("%v, %v", plan, err)
	}
}

// A tenant of a chain that cannot be resolved has no plan, or refuses the request.
func TestChainWhoseTenantIsNotKnown(t *testing.T) {
	resolve := func(_ context.Context, tenant string) (string, error) {
		if tenant == "team" {
			return "", errDown
		}
		return tenant, nil
	}
	plan, err := newBook(t, plans.Config{Set: parse(t, levels), Resolve: resolve}).For(t.Context(), "pro", "team")
	if err != nil || plan.Algorithm("api") != core.PerMinute(100) || plan.Algorithm("team-day") != nil {
		t.Error(plan, err)
	}
	strict := newBook(t, plans.Config{Set: parse(t, levels), Resolve: resolve, OnFailure: plans.OnFailureRefuse})
	if plan, err := strict.For(t.Context(), "pro", "team"); plan != nil || !errors.Is(err, errDown) {
		t.Error(plan, err)
	}
}

// The plan of a request is that of the tenants that its functions derive, whose errors are theirs.
func TestPlanOfARequest(t *testing.T) {
	book := newBook(t, plans.Config{Set: parse(t, levels), Resolve: func(_ context.Context, tenant string) (string, error) {
		return tenant, nil
	}})
	header := func(name string) func(*http.Request) (string, error) {
		return func(r *http.Request) (string, error) {
			if r.Header.Get(name) == "" {
				return "", keyfunc.ErrNoKey
			}
			return r.Header.Get(name), nil
		}
	}
	planOf := book.Plan(header("Org"), header("User"))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Org", "pro")
	if plan, err := planOf(r); plan != nil || !errors.Is(err, keyfunc.ErrNoKey) {
		t.Error(plan, err)
	}
	r.Header.Set("User", "vip")
	plan, err := planOf(r)
	if err != nil || plan.Algorithm("api") != core.PerMinute(500) || plan.Algorithm("org-month") == nil {
		t.Error(plan, err)
	}
}
