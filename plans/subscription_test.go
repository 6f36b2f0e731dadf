package plans_test

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	_ "time/tzdata" // the same zones on every host

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

const subscribed = `
default: free
plans:
  free:
    limits: {month: {limit: 10, calendar: month, in: UTC, anchor: subscription}, api: {rate: 10, per: 1m}}
  pro:
    limits: {month: {limit: 30, calendar: month, in: UTC, anchor: subscription}, api: {rate: 100, per: 1m}}
`

// customers is a table of subscriptions, as of a database.
type customers struct {
	mu  sync.Mutex
	all map[string]plans.Subscription
	err error
}

func (c *customers) subscription(_ context.Context, tenant string) (plans.Subscription, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[tenant], c.err
}

// billing is a gate and a Book of the plans of subscribed, on one manual clock.
type billing struct {
	*customers
	clock *core.ManualClock
	gate  *core.Gate
	book  *plans.Book
	month *core.Policy
}

func newBilling(t *testing.T, now time.Time) *billing {
	t.Helper()
	b := &billing{customers: &customers{all: make(map[string]plans.Subscription)}, clock: core.NewManualClock(now)}
	b.gate = core.Must(core.NewMemory(core.Config{Clock: b.clock.Now}))
	t.Cleanup(func() { _ = b.gate.Close(context.Background()) })
	b.book = newBook(t, plans.Config{Set: parse(t, subscribed), Subscription: b.subscription, Clock: b.clock.Now})
	b.month = core.Must(core.NewPolicy(core.PolicyConfig{Name: "month", Algorithm: core.DenyAll{}}))
	return b
}

func (b *billing) set(t *testing.T, tenant string, s plans.Subscription) {
	t.Helper()
	b.mu.Lock()
	b.all[tenant] = s
	b.mu.Unlock()
	gatetest.NoError(t, b.book.Refresh(t.Context(), tenant))
}

// decide decides on one unit of the month of the innermost tenant.
func (b *billing) decide(t *testing.T, cost int64, tenants ...string) core.Result {
	t.Helper()
	plan := gatetest.Must(b.book.For(t.Context(), tenants[0], tenants[1:]...))(t)
	key := gatetest.Must(core.NewKey(tenants[len(tenants)-1]))(t)
	d := gatetest.Must(b.gate.Decide(t.Context(), core.Charge{
		Policy: b.month, Key: key, Cost: cost, Limit: plan.Algorithm("month"),
	}))(t)
	return d.At(0)
}

// spend spends until the month denies, and returns how much it has admitted.
func (b *billing) spend(t *testing.T, tenants ...string) (n int) {
	t.Helper()
	for b.decide(t, 1, tenants...).Allowed {
		n++
	}
	return n
}

func day(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

// resets are when the months of each kind of subscription begin, by testdata/resets.py.
type resets struct {
	anchor time.Time
	at     []int64
}

func readResets(t *testing.T) (all []resets) {
	t.Helper()
	file := gatetest.Must(os.Open("testdata/resets.csv"))(t)
	defer file.Close()
	for _, row := range gatetest.Must(csv.NewReader(file).ReadAll())(t) {
		zone := gatetest.Must(time.LoadLocation(row[0]))(t)
		clock := gatetest.Must(time.Parse(time.TimeOnly, row[1]))(t)
		first := gatetest.Must(strconv.Atoi(row[2]))(t)
		r := resets{anchor: time.Date(2020, 1, first, clock.Hour(), clock.Minute(), clock.Second(), 0, zone)}
		for _, at := range row[3:] {
			r.at = append(r.at, gatetest.Must(strconv.ParseInt(at, 10, 64))(t))
		}
		all = append(all, r)
	}
	return all
}

// 200 tenants with all days of billing, in two zones, are reset at the second that another language's
// calendar says, through four years with two leap days.
func TestEveryPeriodOfASubscription(t *testing.T) {
	t.Parallel()
	kinds := readResets(t)
	b := newBilling(t, time.Unix(kinds[0].at[0], 0))
	type step struct {
		at     int64
		tenant int
		resets bool
	}
	var steps []step
	const tenants = 200
	for n := range tenants {
		kind := kinds[n%len(kinds)]
		purchase := kind.anchor
		if purchase.Day() <= 28 {
			purchase = purchase.AddDate(0, n%50, 0) // any of the periods says the same
		}
		b.set(t, strconv.Itoa(n), plans.Subscription{Plan: "free", Anchor: purchase})
		for _, at := range kind.at[1:] {
			steps = append(steps, step{at - 1, n, false}, step{at, n, true})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, s := range steps {
		tenant := strconv.Itoa(s.tenant)
		b.clock.Set(time.Unix(s.at, 0))
		if !s.resets {
			b.decide(t, 10, tenant) // the first period of each tenant is not used yet
		}
		r := b.decide(t, 10, tenant)
		gatetest.Need(t, r.Allowed, s.resets, "tenant %d at %v: %v", s.tenant, b.clock.Now().UTC(), r)
		if wait := time.Second; !s.resets && r.RetryAfter != wait {
			t.Fatalf("tenant %d at %v: retry after %v, not %v", s.tenant, b.clock.Now().UTC(), r.RetryAfter, wait)
		}
	}
}

func TestSubscription(t *testing.T) {
	t.Parallel()
	renewal := day(2024, 3, 20)
	pro := plans.Subscription{Plan: "pro", Anchor: day(2024, 1, 20)}
	free := plans.Subscription{Plan: "free", Anchor: pro.Anchor}
	down := plans.Subscription{Plan: "pro", Anchor: pro.Anchor, Next: "free", Renewal: renewal}
	for name, run := range map[string]func(t *testing.T, b *billing){
		"an upgrade keeps the count and holds at once": func(t *testing.T, b *billing) {
			b.set(t, "a", free)
			gatetest.Equal(t, b.spend(t, "a"), 10, "free admits")
			b.set(t, "a", pro)
			gatetest.Equal(t, b.spend(t, "a"), 20, "more admitted by pro")
		},
		"a downgrade waits for the renewal": func(t *testing.T, b *billing) {
			b.set(t, "a", down)
			now := gatetest.Must(b.book.Subscription(t.Context(), "a"))(t)
			if want := (plans.Subscription{Plan: "pro", Anchor: pro.Anchor, Next: "free", Renewal: renewal}); now != want {
				t.Errorf("%v, want %v", now, want)
			}
			b.clock.Set(renewal.Add(-time.Second))
			gatetest.Equal(t, b.spend(t, "a"), 30, "admitted before")
			b.clock.Set(renewal)
			gatetest.Equal(t, b.spend(t, "a"), 10, "admitted afterwards")
			now = gatetest.Must(b.book.Subscription(t.Context(), "a"))(t)
			if now != (plans.Subscription{Plan: "free", Anchor: pro.Anchor}) {
				t.Errorf("%v", now)
			}
		},
		"a moved anchor admits both periods and no more": func(t *testing.T, b *billing) {
			total := 0
			for _, anchor := range []time.Time{day(2024, 1, 20), day(2023, 12, 20), day(2024, 1, 25), day(2024, 1, 20), day(2025, 5, 25)} {
				b.set(t, "a", plans.Subscription{Plan: "free", Anchor: anchor})
				total += b.spend(t, "a")
			}
			gatetest.Equal(t, total, 20, "they admit")
		},
		"an override of the limit keeps the anchor": func(t *testing.T, b *billing) {
			b.set(t, "a", free)
			b.spend(t, "a")
			for _, text := range []string{
				"{limits: {month: {limit: 12, calendar: month, in: UTC}}}",
				"{limits: {month: {limit: 15, calendar: month, in: UTC, anchor: subscription}}}",
				"{plan: pro}",
			} {
				var o plans.Override
				gatetest.NoError(t, o.UnmarshalText([]byte(text)))
				setOverride(t, b.book, "a", o)
				if n := b.spend(t, "a"); n != 2 && n != 3 && n != 15 {
					t.Errorf("%s admits %d more", text, n)
				}
			}
			b.set(t, "a", plans.Subscription{Plan: "free", Anchor: day(2024, 1, 25)})
			gatetest.Equal(t, b.spend(t, "a"), 30, "of another anchor")
		},
		"an override of the limit with an anchor has that": func(t *testing.T, b *billing) {
			b.set(t, "a", free)
			b.spend(t, "a")
			setOverride(t, b.book, "a", plans.Override{Limits: map[string]core.Algorithm{
				"month": core.Calendar{Limit: 5, Every: core.PeriodMonth, In: time.UTC, Anchor: day(2024, 1, 1)},
			}})
			gatetest.Equal(t, b.spend(t, "a"), 5, "it admits")
		},
		"a tenant without a subscription has the calendar's": func(t *testing.T, b *billing) {
			b.spend(t, "a")
			b.clock.Set(day(2024, 3, 1))
			gatetest.Equal(t, b.spend(t, "a"), 10, "March admits")
		},
		"a team has the periods of its organisation": func(t *testing.T, b *billing) {
			b.set(t, "org", pro)
			b.set(t, "team", plans.Subscription{Plan: "free"})
			b.spend(t, "org", "team")
			b.clock.Set(renewal.Add(-time.Second))
			before := b.spend(t, "org", "team")
			b.clock.Set(renewal)
			if n := b.spend(t, "org", "team"); before != 0 || n != 10 {
				t.Errorf("%d before and %d afterwards", before, n)
			}
		},
		"an override of a team keeps the periods of its organisation": func(t *testing.T, b *billing) {
			b.set(t, "org", pro)
			gatetest.Equal(t, b.spend(t, "org", "team"), 30, "the plan admits")
			setOverride(t, b.book, "team", plans.Override{Limits: map[string]core.Algorithm{
				"month": core.Calendar{Limit: 40, Every: core.PeriodMonth, In: time.UTC},
			}})
			before := b.spend(t, "org", "team")
			b.clock.Set(day(2024, 3, 1))
			within := b.spend(t, "org", "team")
			b.clock.Set(renewal)
			if n := b.spend(t, "org", "team"); before != 10 || within != 0 || n != 40 {
				t.Errorf("it admits %d more, %d in March and %d in the next period", before, within, n)
			}
		},
		"the last known subscription holds while the next is not known": func(t *testing.T, b *billing) {
			b.set(t, "a", down)
			want := b.decide(t, 1, "a")
			b.mu.Lock()
			b.err = errDown
			b.mu.Unlock()
			gatetest.NoError(t, b.book.Refresh(t.Context(), "a"))
			if r := b.decide(t, 1, "a"); r.Limit != want.Limit || r.ResetAfter != want.ResetAfter {
				t.Errorf("%v, want %v", r, want)
			}
			b.clock.Set(renewal)
			if r := b.decide(t, 1, "a"); r.Limit != 10 {
				t.Errorf("%v", r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { run(t, newBilling(t, day(2024, 2, 27))) })
	}
}

// An override of a limit keeps the periods of a plan in the file, with an anchor or without one.
func TestOverrideKeepsFilePeriods(t *testing.T) {
	t.Parallel()
	for _, anchor := range []string{"", ", anchor: 2026-01-31"} {
		book := newBook(t, plans.Config{Set: parse(t, "{default: a, plans: {a: {limits: "+
			"{month: {limit: 1, calendar: month, in: Europe/Berlin"+anchor+"}}}}}")})
		want := gatetest.Must(book.For(t.Context(), "acme"))(t).Algorithm("month").(core.Calendar)
		want.Limit = 5
		setOverride(t, book, "acme", plans.Override{Limits: map[string]core.Algorithm{
			"month": core.Calendar{Limit: want.Limit, Every: core.PeriodMonth, In: time.UTC},
		}})
		gatetest.Equal(t, gatetest.Must(book.For(t.Context(), "acme"))(t).Algorithm("month"), core.Algorithm(want), "got")
	}
}

// A fault of a Subscription is that of a Resolve that fails.
func TestSubscriptionFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		is   plans.Subscription
		want string
	}{
		"local":       {plans.Subscription{Anchor: time.Now()}, `in the time zone "Local"`},
		"offset":      {plans.Subscription{Anchor: time.Now().In(time.FixedZone("", 3600))}, "by its name"},
		"year":        {plans.Subscription{Anchor: day(1066, 10, 14)}, "in the year 1066"},
		"next":        {plans.Subscription{Plan: "pro", Next: "gold", Renewal: day(2024, 3, 1)}, `unknown plan: Subscription.Next is "gold"`},
		"no renewal":  {plans.Subscription{Plan: "pro", Next: "free"}, "Renewal is zero"},
		"no such one": {plans.Subscription{Plan: "gold"}, `unknown plan: Resolve returned "gold"`},
	} {
		t.Run(name, func(t *testing.T) {
			book := newBook(t, plans.Config{
				Set: parse(t, subscribed), OnFailure: plans.OnFailureRefuse,
				Subscription: func(context.Context, string) (plans.Subscription, error) { return c.is, nil },
			})
			if _, err := book.For(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not say %q", err, c.want)
			}
		})
	}
}

// A Set tells which limits are of the subscription, and an Override keeps them so.
func TestSubscribedLimits(t *testing.T) {
	t.Parallel()
	free, _ := parse(t, subscribed).Plan("free")
	want := plans.Subscribed{Calendar: core.Calendar{Limit: 10, Every: core.PeriodMonth, In: time.UTC}}
	gatetest.Equal(t, free.Limits["month"], core.Algorithm(want), "got")
	set := gatetest.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{"free": free}}))(t)
	if again, _ := set.Plan("free"); !reflect.DeepEqual(again, free) {
		t.Errorf("%v, want %v", again, free)
	}
	text := gatetest.Must(plans.Override{Limits: free.Limits}.MarshalText())(t)
	var again plans.Override
	if err := again.UnmarshalText(text); err != nil || !reflect.DeepEqual(again.Limits, free.Limits) {
		t.Errorf("%s is read as %v, %v", text, again, err)
	}
	want.Anchor = day(2024, 1, 20)
	_, err := plans.NewSet(plans.SetConfig{
		Default: "free", Plans: map[string]plans.Plan{"free": {Limits: map[string]core.Algorithm{"month": want}}},
	})
	if err == nil || !strings.Contains(err.Error(), "plans.free.limits.month.anchor is a time") {
		t.Errorf("%v", err)
	}
}

// The plan of a known tenant with a subscription allocates nothing, and tenants with equal days share it.
func TestSubscriptionsShare(t *testing.T) {
	b := newBilling(t, day(2024, 2, 27))
	plan := func(tenant string) core.Plan { return gatetest.Must(b.book.For(context.Background(), tenant))(t) }
	for n := range 100 {
		b.set(t, fmt.Sprint(n), plans.Subscription{Plan: "pro", Anchor: day(2024, 1, 20).AddDate(0, -n, 0)})
		gatetest.Need(t, plan("0"), plan(fmt.Sprint(n)), "tenant %d has a plan of its own", n)
	}
	if n := testing.AllocsPerRun(100, func() { plan("7") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
