package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// A page that was given other policies than programs have offers nothing that these do not heed,
// refuses it where it is asked for, and names what it does not know.
func TestPageAsksWhatProgramsHeed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		day := core.Calendar{Limit: 50, Every: core.PeriodYear, In: time.UTC}
		program := statingGate(t, server.Client(t), core.Config{Prefix: server.Prefix})
		key := newKey(t, "acme")
		for _, p := range []*core.Policy{
			limited(t, "month", day), limited(t, "bans", core.PerHour(5)), limited(t, "week", core.PerHour(7)),
			newPolicy(t, core.PolicyConfig{Name: "topped", Algorithm: day, Raisable: true}),
			limited(t, "blocked", core.Block{Strikes: 2, Within: time.Hour, For: time.Hour}),
		} {
			decide(t, program, core.Charge{Policy: p, Key: key, Cost: core.NoCost})
		}
		block := core.Block{Strikes: 2, Within: time.Hour, For: time.Hour}
		raisable := func(name string) *core.Policy {
			return newPolicy(t, core.PolicyConfig{Name: name, Algorithm: day, Raisable: true})
		}
		s := newSite(t, admin.Config{
			Gate: gatetest.Redis(t, server.Client(t), core.Config{Prefix: server.Prefix}), Live: new(admin.Live),
			Policies: []*core.Policy{
				raisable("month"), raisable("topped"), raisable("typo"), limited(t, "bans", block), limited(t, "blocked", block),
				limited(t, "typo-bans", block),
			},
		})
		var text string
		gatetest.Eventually(t, "the program states its policies", func() bool {
			text = squeeze(s.get("subject", "key", "acme"))
			return strings.Contains(text, "week") && strings.Contains(text, "programs state bans, blocked, month, topped, week")
		})
		for _, want := range []string{
			"The next request passes under the limits that this page knows",
			"policies that this page was not given, and what they count of this key is not shown: week (7 per 1 h).",
			"A raise is not offered: month is not Raisable in the program, so no raise counts.",
			`A raise is not offered: no program states a policy "typo"`,
			"A block is not offered: bans is no Block",
			`A block is not offered: no program states a policy "typo-bans"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the page lacks %q: %s", want, text)
			}
		}
		page := s.get("subject", "key", "acme")
		for action, want := range map[string]string{"raise": "topped", "block": "blocked"} {
			if n := strings.Count(page, `value="`+action+`"`); n != 1 {
				t.Errorf("%d forms to %s", n, action)
			}
			if got := formOf(t, page, action).Get("policy"); got != want {
				t.Errorf("%s is offered for %s", action, got)
			}
		}
		for policy, action := range map[string]string{
			"month": "raise", "typo": "raise", "bans": "block", "typo-bans": "block",
		} {
			order := url.Values{"action": {action}, "policy": {policy}, "key": {"acme"}, "units": {"5"}, "for": {"1h"}}
			if status, _, body := s.ask("GET", "confirm?"+order.Encode(), nil); status != http.StatusBadRequest {
				t.Errorf("%s of %s is asked: status %d: %s", action, policy, status, squeeze(body))
			}
			order.Set("id", policy)
			order.Set("until", time.Now().Add(time.Hour).Format(time.RFC3339))
			status, _, body := s.ask("POST", "act", order)
			if e := s.events.last(); status != http.StatusConflict || e.Err == nil {
				t.Errorf("%s of %s is done: status %d: %s", action, policy, status, squeeze(body))
			}
		}
		if page := squeeze(s.get("")); strings.Count(page, "failed") < 4 {
			t.Errorf("the record lacks failed changes: %s", page)
		}
	})
}

// A block that has ended is not lifted, and not recorded as lifted.
func TestUnblockOfAKeyThatIsNotBlocked(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		key := newKey(t, "acme")
		decide(t, s.gate, core.Charge{Policy: s.bans, Key: key, Cost: 1})
		status, _, body := s.ask("POST", "act", url.Values{
			"action": {"unblock"}, "policy": {"bans"}, "key": {"acme"}, "id": {"1"},
		})
		e := s.events.last()
		if status != http.StatusConflict || e.Err == nil || !strings.Contains(body, "not blocked any more") {
			t.Errorf("status %d, %+v: %s", status, e, squeeze(body))
		}
		if strikes, _, _ := s.used(t, s.bans, key); strikes != 1 {
			t.Errorf("%d strikes are left, want 1", strikes)
		}
		if page := squeeze(s.get("")); !strings.Contains(page, "kim unblocked under bans for acme failed") {
			t.Error(page)
		}
	})
}
