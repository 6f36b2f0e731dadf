package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

const agreedPlans = `
default: free
plans:
  free: {limits: {year: {limit: 3, calendar: year, in: UTC, anchor: subscription}, credits: {rate: 0, burst: 6}}}
  pro: {limits: {year: {limit: 3, calendar: year, in: UTC, anchor: subscription, then: {overage: 2}, keep: 40d}, credits: {rate: 0, burst: 6}}}
  slow: {limits: {year: {limit: 2, calendar: year, in: UTC, then: {overage: 1, slow: {rate: 0, burst: 2}}}, credits: deny}}
  none: {limits: {year: {limit: 3, calendar: year, in: UTC, then: {slow: unlimited}}, credits: {rate: 0, burst: 4}}}
`

// The command, the page and a Guard say the same of the next request of random keys under random plans,
// subscriptions and overrides.
func TestWhyPageAndGuardAgree(t *testing.T) {
	t.Parallel()
	keys, commands := 1000, 40
	if gatetest.Long() {
		commands = keys
	}
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	srv := redistest.Start(t)
	a := newApplication(t, srv.Client(t), "--redis", urlOf(srv))
	file := write(t, "plans.yaml", agreedPlans)
	names := []string{"free", "pro", "slow", "none"}
	subscriptions := make(map[string]plans.Subscription)
	for n := range keys {
		s := plans.Subscription{Plan: names[random.IntN(len(names))]}
		if random.IntN(2) == 0 {
			s.Anchor = time.Date(2000, 1, 1+random.IntN(366), 0, 0, 0, 0, time.UTC)
		}
		subscriptions[fmt.Sprint("t", n)] = s
	}
	book := core.Must(plans.New(plans.Config{
		File: file, Client: a.client,
		Subscription: func(_ context.Context, tenant string) (plans.Subscription, error) { return subscriptions[tenant], nil },
	}))
	t.Cleanup(book.Close)
	tenantOf := func(r *http.Request) (string, error) { return r.Header.Get("Tenant"), nil }
	guard := gatetest.Must(nethttp.Quotas(a.gate, book, tenantOf))(t)
	h := guard.Handler(http.NotFoundHandler())
	ask := func(tenant string) int {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Tenant", tenant)
		h.ServeHTTP(w, r)
		return w.Code
	}
	page := gatetest.Must(admin.New(admin.Config{
		Gate: a.gate, Plans: book,
		Policies: []*core.Policy{limitBy("year", core.DenyAll{}), limitBy("credits", core.DenyAll{})},
		Read:     func(*http.Request) (string, error) { return "kim", nil },
	}))(t)
	denied := 0
	for n := range keys {
		tenant := fmt.Sprint("t", n)
		if random.IntN(4) == 0 {
			gatetest.NoError(t, book.SetOverride(t.Context(), tenant, plans.Override{Limits: map[string]core.Algorithm{
				"year": core.Calendar{Limit: 4, Every: core.PeriodYear, In: time.UTC},
			}}))
		}
		for range random.IntN(8) {
			ask(tenant)
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", "http://localhost/subject?key="+url.QueryEscape(tenant), nil))
		passes := strings.Contains(w.Body.String(), "The next request passes")
		why := whyJSON{Passes: passes}
		if n < commands {
			s, anchor := subscriptions[tenant], "none"
			if !s.Anchor.IsZero() {
				anchor = s.Anchor.Format(time.DateOnly)
			}
			why, _ = headgateJSON[whyJSON](t, append([]string{"why", tenant, "--policies", file, "--name", s.Plan, "--anchor", anchor}, a.flags...)...)
		}
		status := ask(tenant)
		if admitted := status == http.StatusNotFound; passes != admitted || why.Passes != admitted || len(why.Counts) > 0 {
			t.Errorf("%s of %v: the Guard answers %d, the page says %v, and why %+v", tenant, subscriptions[tenant], status, passes, why)
		}
		if !passes {
			denied++
		}
	}
	if denied < keys/10 || denied > keys*9/10 {
		t.Errorf("%d of %d are denied: the keys are not mixed", denied, keys)
	}
}
