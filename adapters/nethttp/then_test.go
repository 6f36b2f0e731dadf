package nethttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

// namesIn returns the names of the members of RateLimit-Policy, without their parameters.
func namesIn(h http.Header) string {
	var names []string
	for _, member := range strings.Split(h.Get("RateLimit-Policy"), ", ") {
		name, _, _ := strings.Cut(member, ";")
		names = append(names, strings.Trim(name, `"`))
	}
	return strings.Join(names, " ")
}

// A quota that is spent is followed by its overage, and that by a slower limit, each counted apart, in
// every way in which a Guard decides.
func TestThen(t *testing.T) {
	t.Parallel()
	month := func(n int64) core.Algorithm {
		return core.Calendar{Limit: n, Every: core.PeriodMonth, In: time.UTC}
	}
	for name, change := range map[string]func(cfg *nethttp.Config, gate *core.Gate){
		"rules": func(*nethttp.Config, *core.Gate) {},
		"blocks": func(cfg *nethttp.Config, _ *core.Gate) {
			ban := core.Block{Strikes: 100, Within: time.Hour, For: time.Hour}
			cfg.Blocks = []nethttp.BlockRule{{Policy: gatetest.Limited(t, "bans", ban), Key: keyfunc.RemoteIP()}}
		},
		"delays": func(cfg *nethttp.Config, _ *core.Gate) { cfg.MaxDelay = time.Millisecond },
		"slots": func(cfg *nethttp.Config, gate *core.Gate) {
			slots := core.Must(semaphore.New(gate, semaphore.Config{Name: "slots"}))
			cfg.Slot = &nethttp.Slot{Semaphore: slots, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}}}
		},
		"settling": func(cfg *nethttp.Config, _ *core.Gate) { cfg.Rules[1].Settle = nethttp.RefundServerErrors },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := memory(t, newClock())
			policy := func(name string, a core.Algorithm) *core.Policy {
				return gatetest.Policy(t, core.PolicyConfig{Name: name, Algorithm: a})
			}
			var told []string
			cfg := nethttp.Config{
				Gate: gate,
				Rules: []nethttp.Rule{
					{Policy: policy("api", core.AnyMinute(100)), Key: keyfunc.RemoteIP()},
					{
						Policy: policy("month", month(4)), Key: keyfunc.RemoteIP(),
						Then: []*core.Policy{policy("never", core.DenyAll{}), policy("overage", month(3)), policy("slow", core.AnyMinute(2))},
						Cost: func(r *http.Request) int64 {
							n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
							return n
						},
					},
				},
				Observe: func(_ context.Context, e core.Event) {
					var names []string
					for _, r := range e.(*nethttp.AdmissionEvent).Admission.Decision().Results() {
						names = append(names, r.Policy.Name())
					}
					told = append(told, names[len(names)-1])
				},
			}
			change(&cfg, gate)
			g := guard(t, cfg)
			h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("fail") {
					w.WriteHeader(http.StatusInternalServerError)
				}
			}))
			for i, c := range []struct {
				query  string
				status int
				by     string // the policy that decides
			}{
				{"n=3", 200, "month"},
				{"n=2", 200, "overage"}, // it does not fit any more
				{"n=1", 200, "month"},   // and this does
				{"n=1", 200, "overage"},
				{"n=1", 200, "slow"},
				{"n=2", 429, "slow"},
				{"n=1", 200, "slow"},
				{"n=1", 429, "slow"},
				{"n=9", 413, "slow"}, // more than any of them has
			} {
				w := get(h, asking("/?"+c.query))
				got, last := namesIn(w.Header), told[len(told)-1]
				if w.StatusCode != c.status || !strings.HasPrefix(got, "api "+c.by) || last != c.by {
					t.Errorf("request %d: %d with %s; Observe is told of %s; want %+v", i, w.StatusCode, got, last, c)
				}
				wait := w.Header.Get("Retry-After")
				if c.status == 429 && wait != "61" {
					t.Errorf("request %d: Retry-After %q is not that of slow", i, wait)
				}
			}
			usage := body(t, get(g.Usage()))
			for _, want := range []string{`"name":"month","q":4,"qu":"requests"`, `"used":4`, `"name":"overage","q":3`, `"used":3`, `"name":"slow","q":2`, `"used":2`} {
				if !strings.Contains(usage, want) || strings.Contains(usage, "never") {
					t.Errorf("%s is not in the usage %s", want, usage)
				}
			}
		})
	}
}

// A request that none of a rule's policies admits waits for the one that has room first, and may pass later
// although the last one never admits its cost.
func TestThenTellsTheShortestWait(t *testing.T) {
	t.Parallel()
	end := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		now    time.Time
		cost   int64
		status int
		wait   string
	}{
		"slow has room first":       {end.Add(-time.Hour), 1, 429, "61"},
		"the month begins first":    {end.Add(-30 * time.Second), 1, 429, "30"},
		"too much for slow":         {end.Add(-time.Hour), 2, 429, "3600"},
		"too much for all of them":  {end.Add(-time.Hour), 5, 413, ""},
		"too much, a far new month": {end.AddDate(0, 0, -9), 2, 429, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			clock.Set(c.now)
			gate := memory(t, clock)
			month := gatetest.Limited(t, "month", core.Calendar{Limit: 4, Every: core.PeriodMonth, In: time.UTC})
			slow := gatetest.Limited(t, "slow", core.AnyMinute(1))
			cost := int64(4)
			h := guard(t, nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
				Policy: month, Then: []*core.Policy{slow}, Key: keyfunc.RemoteIP(),
				Cost: func(*http.Request) int64 { return cost },
			}}}).Handler(http.HandlerFunc(ok))
			var r *http.Response
			for _, cost = range []int64{4, 1, c.cost} {
				r = get(h)
			}
			if got := r.Header.Get("Retry-After"); r.StatusCode != c.status || got != c.wait {
				t.Errorf("%d with Retry-After %q, want %d with %q: %s", r.StatusCode, got, c.status, c.wait, body(t, r))
			}
		})
	}
}

// What the look before the body finds under the first policies says nothing of a rule that reads the body.
func TestThenBeforeTheBody(t *testing.T) {
	t.Parallel()
	fast, slow := gatetest.Limited(t, "fast", core.AnyMinute(1)), gatetest.Limited(t, "slow", core.AnyMinute(9))
	bytes := gatetest.Limited(t, "bytes", core.FixedWindow{Limit: 10, Window: time.Hour})
	h := guard(t, nethttp.Config{Gate: memory(t, newClock()), Rules: []nethttp.Rule{
		{Policy: bytes, Key: keyfunc.RemoteIP(), Cost: nethttp.ContentLength(0), CostBody: 10},
		{Policy: fast, Then: []*core.Policy{slow}, Key: keyfunc.RemoteIP()},
	}}).Handler(http.HandlerFunc(ok))
	for _, want := range []string{"", "3600"} {
		w := get(h, func(r *http.Request) {
			r.Header.Set("Expect", "100-continue")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader("6bytes")), 6
		})
		gatetest.Equal(t, w.Header.Get("Retry-After"), want, "Retry-After")
	}
}

// A request that a Closed policy denies is told of the policies that it was decided under.
func TestThenBesideClosed(t *testing.T) {
	t.Parallel()
	fast, slow := gatetest.Limited(t, "fast", core.PerHour(1)), gatetest.Limited(t, "slow", core.PerHour(9))
	closed := policy(t, core.PolicyConfig{Name: "closed", Algorithm: core.PerHour(9), OnFailure: core.FailClosed})
	h := served(t, nethttp.Config{Gate: dead(t), Rules: []nethttp.Rule{
		{Policy: fast, Then: []*core.Policy{slow}, Key: keyfunc.RemoteIP(), Cost: func(*http.Request) int64 { return 2 }},
		{Policy: closed, Key: keyfunc.RemoteIP()},
	}})
	r := get(h)
	answers(t, r, http.StatusServiceUnavailable)
	gatetest.Equal(t, namesIn(r.Header), "fast closed", "policies")
}

// What a handler that fails gives back comes back to the policy that was charged.
func TestThenIsSettled(t *testing.T) {
	t.Parallel()
	gate := memory(t, newClock())
	month := gatetest.Limited(t, "month", core.TokenBucket{Burst: 1})
	overage := gatetest.Limited(t, "overage", core.TokenBucket{Burst: 1})
	g := guard(t, nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
		Policy: month, Then: []*core.Policy{overage}, Key: keyfunc.RemoteIP(), Settle: nethttp.RefundServerErrors,
	}}})
	status := http.StatusOK
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
	for i, c := range []struct{ handled, want int }{{200, 200}, {500, 500}, {500, 500}, {200, 200}, {200, 429}} {
		status = c.handled
		gatetest.Equal(t, get(h).StatusCode, c.want, "request %d", i)
	}
}

// Quotas answers as the plan says, and a plan that says nothing refuses.
func TestThenOfPlans(t *testing.T) {
	t.Parallel()
	gate := memory(t, newClock())
	book := gatetest.Must(plans.New(plans.Config{
		Set: gatetest.Must(plans.ParseSet([]byte(`
default: free
plans:
  free: {limits: {month: {limit: 1, calendar: month, in: UTC}}}
  pro: {limits: {month: {limit: 2, calendar: month, in: UTC, then: {overage: 1}}}}
  slow: {limits: {month: {limit: 1, calendar: month, in: UTC, then: {slow: {rate: 1, per: 1m}}}}}
  none: {limits: {month: deny}}
`)))(t),
		Resolve: func(_ context.Context, tenant string) (string, error) { return tenant, nil },
	}))(t)
	t.Cleanup(book.Close)
	h := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t).Handler(http.NotFoundHandler())
	for tenant, want := range map[string]string{
		"free": "404 month, 429 month, 429 month, 429 month",
		"pro":  "404 month, 404 month, 404 month.overage, 429 month.overage",
		"slow": "404 month, 404 month.slow, 429 month.slow, 429 month.slow",
		"none": "403 month, 403 month, 403 month, 403 month",
	} {
		var got []string
		for range 4 {
			w := askAs(h, tenant, "/")
			got = append(got, fmt.Sprint(w.Code, " ", namesIn(w.Header())))
		}
		gatetest.Equal(t, strings.Join(got, ", "), want, "%s", tenant)
	}
}

// What a plan keeps of a period that has ended is what was admitted in it, the overage apart.
func TestKeptPeriods(t *testing.T) {
	t.Parallel()
	clock := newClock()
	clock.Set(time.Date(2026, 2, 10, 0, 0, 0, 0, time.UTC))
	gate := memory(t, clock)
	anchor := time.Date(2026, 1, 17, 9, 0, 0, 0, time.UTC)
	book := gatetest.Must(plans.New(plans.Config{
		Set: gatetest.Must(plans.ParseSet([]byte(`
default: free
plans:
  free:
    limits:
      month: {limit: 4, calendar: month, in: UTC, anchor: subscription, then: {overage: 2, slow: {rate: 1, per: 1h}}, keep: 40d}
      day: {limit: 100, calendar: day, in: UTC}
  pro: {limits: {month: unlimited, day: unlimited}}
`)))(t),
		Subscription: func(_ context.Context, tenant string) (plans.Subscription, error) {
			return plans.Subscription{Plan: tenant, Anchor: anchor}, nil
		},
	}))(t)
	t.Cleanup(book.Close)
	g := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t)
	h := g.Handler(http.HandlerFunc(ok))
	for range 9 { // 4, an overage of 2 and a slow one
		askAs(h, "free", "/")
	}
	askAs(h, "pro", "/")
	clock.Set(anchor.AddDate(0, 1, 0))
	for range 3 {
		askAs(h, "free", "/")
	}
	next := anchor.AddDate(0, 1, 0)
	first := core.Span{From: anchor, Until: next}
	expectKept(t, book, gate, "free", "month", anchor, plans.KeptPeriod{Period: first, Used: 4})
	expectKept(t, book, gate, "free", "month.overage", anchor, plans.KeptPeriod{Period: first, Used: 2})
	second := core.Span{From: next, Until: next.AddDate(0, 1, 0)}
	expectKept(t, book, gate, "free", "month", clock.Now(), plans.KeptPeriod{Period: second, Used: 3})
	expectKept(t, book, gate, "free", "month.overage", clock.Now())
	for _, limit := range []string{"day", "month.slow"} {
		gatetest.Fails(t, gatetest.Err(book.Kept(t.Context(), gate, "free", limit, anchor)), "%s is kept", limit)
	}
	for tenant, want := range map[string]string{
		"free": `"name":"month","q":4,"qu":"requests","w":2419200,"used":3,"r":1,"t":2419200,"reset":2419200}`,
		"pro":  `{"name":"month","qu":"requests","unlimited":true}`,
	} {
		gatetest.Contains(t, askAs(g.Usage(), tenant, "/").Body.String(), want, "usage of %s", tenant)
	}
	gatetest.Equal(t, namesIn(askAs(h, "free", "/").Header()), "day month", "clients are told of")
	clock.Set(anchor.AddDate(0, 2, 41)) // 40 days after the second period
	expectKept(t, book, gate, "free", "month", anchor)
}

// expectKept expects what is kept of a limit at a time.
func expectKept(
	t *testing.T, book *plans.Book, gate *core.Gate, tenant, limit string, at time.Time, want ...plans.KeptPeriod,
) {
	t.Helper()
	got, err := book.Kept(t.Context(), gate, tenant, limit, at)
	checkKept(t, tenant+"'s "+limit, got, err, want...)
}

func checkKept(t *testing.T, what string, got []plans.KeptPeriod, err error, want ...plans.KeptPeriod) {
	t.Helper()
	same := func(a, b plans.KeptPeriod) bool { return a.Used == b.Used && a.Period.String() == b.Period.String() }
	if err != nil || !slices.EqualFunc(got, want, same) {
		t.Errorf("%s: %v, %v, want %v", what, got, err, want)
	}
}

// After a change of plans, whatever the periods of both are, the periods of the plan before can still be
// billed.
func TestKeptPeriodsAfterChange(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 1, 17, 9, 0, 0, 0, time.UTC)
	renewal := anchor.AddDate(0, 1, 0)
	before := core.Span{From: anchor, Until: renewal}
	for name, free := range map[string]string{
		"no overage":   "{limit: 1, calendar: month, in: UTC, anchor: subscription, keep: 40d}",
		"nothing kept": "{limit: 1, calendar: month, in: UTC, anchor: subscription}",
		"a week":       "{limit: 9, calendar: week, in: UTC, anchor: subscription, keep: 40d}",
		"a year":       "{limit: 9, calendar: year, in: UTC, keep: 40d}",
		"a bucket":     "{rate: 1, per: 1m}",
		"unlimited":    "unlimited",
		"denied":       "deny",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			clock.Set(anchor.AddDate(0, 0, 10))
			gate := memory(t, clock)
			text := `
default: free
plans:
  pro: {limits: {month: {limit: 4, calendar: month, in: UTC, anchor: subscription, then: {overage: 2}, keep: 40d}}}
  free: {limits: {month: ` + free + `}}
`
			book := gatetest.Must(plans.New(plans.Config{
				Set: gatetest.Must(plans.ParseSet([]byte(text)))(t), Clock: clock.Now,
				Subscription: func(context.Context, string) (plans.Subscription, error) {
					return plans.Subscription{Plan: "pro", Anchor: anchor, Next: "free", Renewal: renewal}, nil
				},
			}))(t)
			t.Cleanup(book.Close)
			g := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t)
			h := g.Handler(http.HandlerFunc(ok))
			for range 7 {
				askAs(h, "acme", "/")
			}
			clock.Set(renewal.Add(time.Hour))
			expectKept(t, book, gate, "acme", "month", anchor, plans.KeptPeriod{Period: before, Used: 4})
			expectKept(t, book, gate, "acme", "month.overage", anchor, plans.KeptPeriod{Period: before, Used: 2})
			renamed := gatetest.Must(plans.ParseSet([]byte(strings.Replace(text, "pro:", "team:", 1))))(t)
			gatetest.NoError(t, book.Replace(renamed))
			month := gatetest.Limited(t, "month", core.Calendar{Limit: 4, Every: core.PeriodMonth, In: time.UTC, Anchor: anchor})
			gatetest.NoError(t, gate.Reset(t.Context(), core.Charge{Policy: month, Key: gatetest.Key(t, "acme")}))
			expectKept(t, book, gate, "acme", "month", anchor, plans.KeptPeriod{Period: before, Used: 4})
		})
	}
}

// A tenant that changes plans within a period has both.
func TestKeptPeriodsOfTwoPlans(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC) // is a Monday
	clock := newClock()
	clock.Set(anchor.AddDate(0, 0, 8))
	gate := memory(t, clock)
	plan := "monthly"
	book := gatetest.Must(plans.New(plans.Config{
		Set: gatetest.Must(plans.ParseSet([]byte(`
default: monthly
plans:
  monthly: {limits: {calls: {limit: 9, calendar: month, in: UTC, anchor: subscription, keep: 40d}}}
  weekly: {limits: {calls: {limit: 9, calendar: week, in: UTC, anchor: subscription, keep: 40d}}}
`)))(t),
		Subscription: func(context.Context, string) (plans.Subscription, error) {
			return plans.Subscription{Plan: plan, Anchor: anchor}, nil
		},
	}))(t)
	t.Cleanup(book.Close)
	g := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t)
	h := g.Handler(http.HandlerFunc(ok))
	askAs(h, "acme", "/")
	plan = "weekly"
	gatetest.NoError(t, book.Refresh(t.Context(), "acme"))
	askAs(h, "acme", "/")
	askAs(h, "acme", "/")
	week := core.Span{From: anchor.AddDate(0, 0, 7), Until: anchor.AddDate(0, 0, 14)}
	month := core.Span{From: anchor, Until: anchor.AddDate(0, 1, 0)}
	expectKept(t, book, gate, "acme", "calls", clock.Now(),
		plans.KeptPeriod{Period: week, Used: 2}, plans.KeptPeriod{Period: month, Used: 1})
}

// After an Anchor has moved, the periods of the one before can still be billed.
func TestKeptPeriodsOfEarlierAnchor(t *testing.T) {
	t.Parallel()
	old := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	moved := time.Date(2026, 2, 10, 12, 0, 0, 0, time.UTC)
	clock := newClock()
	clock.Set(moved.Add(-time.Hour))
	gate := memory(t, clock)
	anchor := old
	book := gatetest.Must(plans.New(plans.Config{
		Set: gatetest.Must(plans.ParseSet([]byte("default: a\nplans: {a: {limits: {month: {limit: 4, calendar: month, " +
			"in: UTC, anchor: subscription, keep: 40d}}}}")))(t),
		Subscription: func(context.Context, string) (plans.Subscription, error) {
			return plans.Subscription{Anchor: anchor}, nil
		},
	}))(t)
	t.Cleanup(book.Close)
	h := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t).Handler(http.HandlerFunc(ok))
	askAs(h, "acme", "/")
	askAs(h, "acme", "/")
	anchor = moved
	gatetest.NoError(t, book.Refresh(t.Context(), "acme"))
	clock.Set(moved.Add(time.Hour))
	askAs(h, "acme", "/")
	before := plans.KeptPeriod{
		Period: core.Span{From: old, Until: time.Date(2026, 2, 28, 9, 0, 0, 0, time.UTC)}, Used: 2,
	}
	after := plans.KeptPeriod{Period: core.Span{From: moved, Until: moved.AddDate(0, 1, 0)}, Used: 1}
	expectKept(t, book, gate, "acme", "month", clock.Now(), after)
	both, err := book.Kept(t.Context(), gate, "acme", "month", clock.Now(), old)
	checkKept(t, "both", both, err, before, after)
	local := old.In(time.FixedZone("", 3600))
	if kept, err := book.Kept(t.Context(), gate, "acme", "month", clock.Now(), local); err == nil {
		t.Errorf("an Anchor in a zone without a name: %v", kept)
	}
}

// An override of a quota, whatever its periods are, leaves what is kept of the overage on the overage's own.
func TestKeptOverageUnderOverride(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 1, 17, 9, 0, 0, 0, time.UTC)
	for name, limit := range map[string]core.Algorithm{
		"a month":        core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC},
		"a day":          core.Calendar{Limit: 1, Every: core.PeriodDay, In: time.UTC},
		"another anchor": core.Calendar{Limit: 1, Every: core.PeriodMonth, In: time.UTC, Anchor: anchor.AddDate(0, 0, 5)},
		"a bucket":       core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			clock.Set(anchor.AddDate(0, 0, 10))
			gate := memory(t, clock)
			book := gatetest.Must(plans.New(plans.Config{
				Set: gatetest.Must(plans.ParseSet([]byte(`
default: free
plans:
  free: {limits: {month: {limit: 4, calendar: month, in: UTC, anchor: subscription, then: {overage: 2}, keep: 40d}}}
`)))(t),
				Subscription: func(context.Context, string) (plans.Subscription, error) {
					return plans.Subscription{Anchor: anchor}, nil
				},
			}))(t)
			t.Cleanup(book.Close)
			override := plans.Override{Limits: map[string]core.Algorithm{"month": limit}}
			gatetest.NoError(t, book.SetOverride(t.Context(), "acme", override))
			h := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t).Handler(http.HandlerFunc(ok))
			for range 5 { // 1, an overage of 2, and two refusals
				askAs(h, "acme", "/")
			}
			expectKept(t, book, gate, "acme", "month.overage", clock.Now(),
				plans.KeptPeriod{Period: core.Span{From: anchor, Until: anchor.AddDate(0, 1, 0)}, Used: 2})
		})
	}
}

// A plan that is made in Go may keep what is counted of the overage alone.
func TestKeptOverageAlone(t *testing.T) {
	t.Parallel()
	clock := newClock()
	month := core.Calendar{Limit: 2, Every: core.PeriodMonth, In: time.UTC}
	keeps := core.TokenBucket{Burst: 1e15, Per: 72 * 24 * time.Hour} // as keep: 40d of a file
	gate := memory(t, clock)
	book := gatetest.Must(plans.New(plans.Config{
		Set: gatetest.Must(plans.NewSet(plans.SetConfig{Default: "a", Plans: map[string]plans.Plan{"a": {
			Limits: map[string]core.Algorithm{"month": month, "month.overage": month, "month.overage.kept": keeps},
		}}}))(t),
	}))(t)
	t.Cleanup(book.Close)
	h := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t).Handler(http.HandlerFunc(ok))
	for range 5 {
		askAs(h, "acme", "/")
	}
	period := gatetest.Must(month.Period(clock.Now()))(t)
	expectKept(t, book, gate, "acme", "month.overage", clock.Now(), plans.KeptPeriod{Period: period, Used: 2})
}

// Whatever dies, a quota and what is kept of its period are one count, which has every request that was
// answered and none that was not sent.
func TestKeptPeriodsSurviveKills(t *testing.T) {
	t.Parallel()
	requests := 3000
	if gatetest.Long() {
		requests = 100_000
	}
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	gate := gatetest.Redis(t, s.Client(t), core.Config{})
	begun := time.Now().UTC().Add(-10 * 24 * time.Hour)
	book := gatetest.Must(plans.New(plans.Config{
		Set: gatetest.Must(plans.ParseSet([]byte("default: free\nplans: {free: {limits: {month: {limit: 40, calendar: month, " +
			"in: UTC, anchor: subscription, then: {overage: 1000000}, keep: 1d}}}}")))(t),
		Subscription: func(context.Context, string) (plans.Subscription, error) {
			return plans.Subscription{Anchor: begun}, nil
		},
	}))(t)
	t.Cleanup(book.Close)
	h := gatetest.Must(nethttp.Quotas(gate, book, tenantOf))(t).Handler(http.HandlerFunc(ok))
	const tenants, workers = 5, 4
	var count atomic.Int64
	var sent, answered [tenants]atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := count.Add(1); n <= int64(requests); n = count.Add(1) {
				sent[n%tenants].Add(1)
				if askAs(h, fmt.Sprint("t", n%tenants), "/").Header().Get("RateLimit") != "" { // Redis has decided
					answered[n%tenants].Add(1)
				}
			}
		})
	}
	client := s.Client(t)
	for kill := int64(1); kill < 10; kill++ {
		gatetest.Eventually(t, "the next kill", func() bool { return count.Load() >= kill*int64(requests)/10 })
		if kill%3 == 0 {
			s.Kill()
			s.Restart()
		} else {
			_ = client.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal").Err() // this connection too
		}
	}
	all.Wait()
	for n := range tenants {
		tenant := fmt.Sprint("t", n)
		plan := gatetest.Must(book.For(t.Context(), tenant))(t)
		sum := int64(0)
		for _, limit := range []string{"month", "month.overage"} {
			var d core.Decision
			var kept []plans.KeptPeriod
			gatetest.Eventually(t, "an answer", func() bool {
				var err, err2 error
				d, err = gate.Peek(t.Context(), core.Charge{
					Policy: gatetest.Limited(t, limit, core.DenyAll{}), Key: gatetest.Key(t, tenant), Cost: core.NoCost, Limit: plan.Algorithm(limit),
				})
				kept, err2 = book.Kept(t.Context(), gate, tenant, limit, time.Now())
				return err == nil && d.Cause == nil && err2 == nil
			})
			used := d.At(0).Used
			if len(kept) != 1 || kept[0].Used != used {
				t.Errorf("%s of %s: %v is kept of %d", limit, tenant, kept, used)
			}
			sum += used
		}
		if least, most := answered[n].Load(), sent[n].Load(); sum < least || sum > most || least == 0 {
			t.Errorf("%s: %d are kept, %d were sent and %d answered", tenant, sum, most, least)
		}
	}
}
