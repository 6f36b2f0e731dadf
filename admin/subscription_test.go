package admin_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/plans"
)

// The page of a tenant tells when its periods begin and what follows, and offers an override that keeps
// the periods.
func TestPageOfASubscription(t *testing.T) {
	t.Parallel()
	anchor := time.Date(2026, 1, 31, 9, 0, 0, 0, gatetest.Must(time.LoadLocation("Europe/Berlin"))(t))
	book := gatetest.Must(plans.New(plans.Config{
		Set: core.Must(plans.ParseSet([]byte("default: free\nplans: {free: {limits: " +
			"{month: {limit: 10, calendar: month, in: UTC, anchor: subscription}}}, pro: {}}"))),
		Subscription: func(context.Context, string) (plans.Subscription, error) {
			return plans.Subscription{Plan: "free", Anchor: anchor, Next: "pro", Renewal: time.Date(2199, 1, 31, 8, 0, 0, 0, time.UTC)}, nil
		},
	}))(t)
	t.Cleanup(book.Close)
	gate := core.Must(core.NewMemory(core.Config{}))
	s := newSite(t, admin.Config{Gate: gate, Plans: book, Policies: []*core.Policy{newPolicy(t, core.PolicyConfig{
		Name: "month", Algorithm: core.DenyAll{},
	})}})
	page := s.get("subject", "key", "acme")
	for _, want := range []string{
		"Its periods begin as on 31 January 2026 at 09:00:00, Europe/Berlin.",
		"Its plan will be pro from 31 January 2199 at 08:00:00 UTC on.",
		"10 in each month from day 31, 09:00, Europe/Berlin",
		`value="{anchor: &#34;subscription&#34;, calendar: &#34;month&#34;, in: &#34;UTC&#34;, limit: 10}"`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is not in %s", want, page)
		}
	}
	gatetest.NoError(t, book.SetOverride(t.Context(), "acme", plans.Override{Limits: map[string]core.Algorithm{
		"month": core.Calendar{Limit: 20, Every: core.PeriodMonth, In: time.UTC},
	}}))
	if page := s.get("subject", "key", "acme"); !strings.Contains(page, "20 in each month from day 31") ||
		!strings.Contains(page, `value="{calendar: &#34;month&#34;, in: &#34;UTC&#34;, limit: 20}"`) {
		t.Errorf("an override of the limit freezes the anchor: %s", page)
	}
}
