package admin_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// service is what a page of all actions is about.
type service struct {
	*site
	gate             *core.Gate
	api, month, bans *core.Policy
	streams          *semaphore.Semaphore
	book             *plans.Book
}

// eachService runs f in memory, on each Redis and on a cluster.
func eachService(t *testing.T, f func(t *testing.T, s *service)) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		f(t, newService(t, gatetest.Memory(t, core.Config{}), plans.Config{}))
	})
	redistest.Each(t, func(t *testing.T, server *redistest.Server) {
		g := statingGate(t, server.Client(t), core.Config{Prefix: server.Prefix})
		f(t, newService(t, g, plans.Config{Client: server.Client(t), Prefix: server.Prefix}))
	})
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t, 3)
		g := statingGate(t, cluster.Client(t), core.Config{})
		f(t, newService(t, g, plans.Config{Client: cluster.Client(t)}))
	})
}

func newService(t *testing.T, g *core.Gate, cfg plans.Config) *service {
	t.Helper()
	set := core.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {Limits: map[string]core.Algorithm{"api": core.PerHour(100)}},
		"pro":  {Limits: map[string]core.Algorithm{"api": core.PerHour(1000)}},
	}}))
	cfg.Set = set
	book := core.Must(plans.New(cfg))
	t.Cleanup(book.Close)
	s := &service{
		gate: g, book: book, streams: newSemaphore(t, g, "streams"),
		api:   limited(t, "api", core.PerHour(5)),
		month: newPolicy(t, core.PolicyConfig{Name: "month", Algorithm: core.Calendar{Limit: 50, Every: core.PeriodYear, In: time.UTC}, Raisable: true}),
		bans:  limited(t, "bans", core.Block{Strikes: 2, Within: time.Hour, For: time.Hour}),
	}
	s.site = newSite(t, admin.Config{
		Gate: g, Policies: []*core.Policy{s.api, s.month, s.bans}, Semaphores: []*semaphore.Semaphore{s.streams}, Plans: book, Live: new(admin.Live),
	})
	return s
}

// asked asks for a change on the page of a key, answers the question and returns the result's page.
func (s *service) asked(t *testing.T, page, action string, change ...string) string {
	t.Helper()
	form := formOf(t, page, action)
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
	}
	before := s.events.last()
	confirm := s.get("confirm?" + form.Encode())
	gatetest.Need(t, s.events.last(), before, "the question carried out")
	return s.answer(t, confirm, action)
}

// answer sends the form of a question or of an undo.
func (s *service) answer(t *testing.T, page, action string) string {
	t.Helper()
	form := formOf(t, page, action)
	status, _, result := s.ask("POST", "act", form, "Sec-Fetch-Site", "same-origin")
	gatetest.Need(t, status, http.StatusOK, "%s: status (%s)", action, squeeze(result))
	if e := s.events.last(); e.Operator != "kim" || e.Op.String() != action || e.EventName() != "operator "+action || e.Err != nil {
		t.Errorf("%s told %+v", action, e)
	}
	before := s.events.last()
	// The same again, as by a second click, does nothing.
	if status, _, again := s.ask("POST", "act", form, "Sec-Fetch-Site", "same-origin"); status != http.StatusOK ||
		!strings.Contains(again, "done before") || s.events.last() != before {
		t.Errorf("%s again: status %d: %s", action, status, squeeze(again))
	}
	return result
}

func (s *service) used(t *testing.T, p *core.Policy, key core.Key) (used, limit int64, allowed bool) {
	t.Helper()
	plan := gatetest.Must(s.book.For(t.Context(), key.Parts()[0]))(t)
	c := core.Charge{Policy: p, Key: key, Cost: core.NoCost, Limit: plan.Algorithm(p.Name())}
	d := gatetest.Peek(t, s.gate, c)
	r := d.At(0)
	return r.Used, r.Limit, d.Allowed
}

// Every action is asked once, told, and undone where that is possible.
func TestActions(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		t.Run("evict", s.evictsHolders)
		key := newKey(t, "acme", "<bob>")
		spend := func(p *core.Policy, n int64) {
			t.Helper()
			plan := gatetest.Must(s.book.For(t.Context(), "acme"))(t)
			decide(t, s.gate, core.Charge{Policy: p, Key: key, Cost: n, Limit: plan.Algorithm(p.Name())})
		}
		want := func(p *core.Policy, used, limit int64) {
			t.Helper()
			if u, l, _ := s.used(t, p, key); u != used || l != limit {
				t.Errorf("%s: %d of %d used, want %d of %d", p.Name(), u, l, used, limit)
			}
		}
		page := func() string { t.Helper(); return s.get("subject", "key", inspect.FormatKey(key)) }
		spend(s.api, 100)
		spend(s.month, 50)
		decide(t, s.gate, core.Charge{Policy: s.bans, Key: key, Cost: core.NoCost})
		gatetest.Eventually(t, "the program states its policies", func() bool {
			text := page()
			return strings.Contains(text, `value="raise"`) && strings.Contains(text, `value="block"`)
		})

		result := s.asked(t, page(), "give", "policy", "api", "units", "10")
		want(s.api, 90, 100)
		s.answer(t, result, "take")
		want(s.api, 100, 100)
		result = s.asked(t, page(), "give", "policy", "month", "units", "7")
		want(s.month, 43, 50)
		s.answer(t, result, "take")
		want(s.month, 50, 50)

		result = s.asked(t, page(), "reset", "policy", "api")
		want(s.api, 0, 100)
		result = s.answer(t, result, "take")
		want(s.api, 100, 100)
		s.answer(t, result, "give")
		want(s.api, 0, 100)

		result = s.asked(t, page(), "raise", "policy", "month", "units", "10", "for", "period")
		want(s.month, 50, 60)
		year := time.Date(time.Now().UTC().Year()+1, 1, 1, 0, 0, 0, 0, time.UTC)
		if e := s.events.last(); !e.Until.Equal(year) || e.Units != 10 {
			t.Errorf("%+v", e)
		}
		result = s.answer(t, result, "end raise")
		want(s.month, 50, 50)
		s.answer(t, result, "raise")
		want(s.month, 50, 60)

		result = s.asked(t, page(), "block", "policy", "bans", "for", "1d")
		if _, _, allowed := s.used(t, s.bans, key); allowed {
			t.Error("the key is not blocked")
		}
		s.answer(t, result, "unblock")
		if _, _, allowed := s.used(t, s.bans, key); !allowed {
			t.Error("the key is blocked")
		}
		decide(t, s.gate, core.Charge{Policy: s.bans, Key: key, Cost: 2})
		result = s.asked(t, page(), "unblock", "policy", "bans")
		if _, _, allowed := s.used(t, s.bans, key); !allowed {
			t.Error("the key is blocked")
		}
		s.answer(t, result, "block")
		if _, _, allowed := s.used(t, s.bans, key); allowed {
			t.Error("the key is not blocked")
		}

		shorter := url.Values{"action": {"block"}, "policy": {"bans"}, "key": {inspect.FormatKey(key)}, "for": {"15m"}}
		s.answer(t, s.get("confirm?"+shorter.Encode()), "block")
		if e := s.events.last(); time.Until(e.Until) < 50*time.Minute {
			t.Errorf("the block that ends last ends at %v", e.Until)
		}

		override := formOf(t, page(), "override")
		override.Set("limit_policy", "api")
		override.Set("limit", "{rate: 7, per: 1h}")
		override.Set("for", "1h")
		result = s.answer(t, s.get("confirm?"+override.Encode()), "override")
		want(s.api, 0, 7)
		override.Set("limit", "")
		override.Set("plan", "pro")
		override.Set("for", "forever")
		again := s.answer(t, s.get("confirm?"+override.Encode()), "override")
		o, is, err := s.book.Override(t.Context(), "acme")
		if err != nil || !is || o.Plan != "pro" || len(o.Limits) != 1 || !o.Until.IsZero() {
			t.Errorf("%+v, %v, %v", o, is, err)
		}
		s.answer(t, again, "override") // the one before
		o, _, err = s.book.Override(t.Context(), "acme")
		if err != nil || o.Plan != "" || o.Until.IsZero() {
			t.Errorf("%+v, %v", o, err)
		}
		gatetest.Contains(t, s.get("confirm?action=end+override&tenant=acme"), "What was spent stays counted", "got")
		s.answer(t, result, "end override")
		want(s.api, 0, 100)
		if _, is, err := s.book.Override(t.Context(), "acme"); is || err != nil {
			t.Error(is, err)
		}
	})
}

// A holder is evicted, and one that has left is no failure of the page.
func (s *service) evictsHolders(t *testing.T) {
	key := newKey(t, "acme", "bob")
	l := gatetest.Must(s.streams.Acquire(t.Context(), semaphore.Request{
		Caps: []semaphore.Cap{{Key: newKey(t, "acme"), Limit: 2}, {Key: key, Limit: 2}},
		Meta: map[string]string{"request": "<script>1"},
	}))(t)
	page := s.get("subject", "key", "acme")
	if text := squeeze(page); !strings.Contains(text, "acme: 1 of 2 slots") || !strings.Contains(text, "request: <script>1") {
		t.Error(text)
	}
	form := formOf(t, page, "evict")
	confirm := s.get("confirm?" + form.Encode())
	if text := squeeze(confirm); !strings.Contains(text, "Take 1 of the slots of acme/bob at streams away?") ||
		!strings.Contains(text, "request: <script>1") || !strings.Contains(text, "cannot be undone") {
		t.Error(text)
	}
	s.answer(t, confirm, "evict")
	select {
	case <-l.Lost():
	case <-time.After(gatetest.LongTimeout):
		t.Error("the lease is not lost")
	}
	if e := s.events.last(); e.Slots != "streams" || e.Holder == "" || e.Key != key {
		t.Errorf("%+v", e)
	}
	s.expect("GET", "confirm?"+form.Encode(), nil, http.StatusBadRequest, "has left")
	late := formOf(t, confirm, "evict")
	late.Set("id", "another")
	s.expect("POST", "act", late, http.StatusConflict, "has left")
	if e := s.events.last(); e.Err == nil {
		t.Errorf("%+v", e)
	}
}

// An override that is written on the page has the then and the keep of its limit.
func TestOverrideHasThenAndKeep(t *testing.T) {
	s := newService(t, gatetest.Memory(t, core.Config{}), plans.Config{})
	override := formOf(t, s.get("subject", "key", "acme"), "override")
	override.Set("limit_policy", "api")
	override.Set("limit", "{limit: 7, calendar: day, in: UTC, then: {overage: 3}, keep: 40d}")
	override.Set("for", "1h")
	s.answer(t, s.get("confirm?"+override.Encode()), "override")
	o, _, err := s.book.Override(t.Context(), "acme")
	want := []string{"api", "api.kept", "api.overage", "api.overage.kept"}
	if names := slices.Sorted(maps.Keys(o.Limits)); err != nil || !slices.Equal(names, want) {
		t.Errorf("limits %v, %v", names, err)
	}
}

// What a form says wrongly changes nothing, and is answered in words.
func TestOrdersThatCannotBe(t *testing.T) {
	s := newService(t, gatetest.Memory(t, core.Config{}), plans.Config{})
	for query, want := range map[string]string{
		"":                                    "there is no such action",
		"action=format&key=acme":              "there is no such action",
		"action=give&key=acme&policy=no":      "there is no such policy",
		"action=give&key=&policy=api&units=1": "the key is not one",
		"action=give&key=acme&policy=api&units=x":                                       "is no number",
		"action=give&key=acme&policy=api&units=0":                                       "is no number",
		"action=give&key=acme&policy=api&units=99999999999999999999":                    "is no number",
		"action=raise&key=acme&policy=month&units=1":                                    "for which it lasts is missing",
		"action=block&key=acme&policy=bans&for=9y":                                      "for which it lasts is missing",
		"action=evict&key=acme&slots=no&holder=x":                                       "there is no such semaphore",
		"action=evict&key=acme&slots=streams&holder=x":                                  "the holder has left",
		"action=override&for=1h":                                                        "this page knows no such tenant",
		"action=override&tenant=acme&for=1h":                                            "choose a plan",
		"action=override&tenant=acme&for=1h&limit_policy=api&limit=x":                   "the limit",
		"action=override&tenant=acme&for=1h&limit_policy=api&limit=unlimited%0Aplan: x": "several lines",
		"action=end override&tenant=acme":                                               "no override",
		"action=end raise&key=acme&policy=month&units=1":                                "by its button alone",
		"action=give&key=acme&policy=api&units=1&until=x":                               "the time is not one",
	} {
		values := gatetest.Must(url.ParseQuery(query))(t)
		status, _, body := s.ask("GET", "confirm?"+values.Encode(), nil)
		if text := strings.ToLower(squeeze(body)); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%q: status %d: %s", query, status, text)
		}
		if strings.HasPrefix(want, "there is") || strings.Contains(want, "number") {
			values.Set("id", "x")
			s.expect("POST", "act", values, http.StatusBadRequest)
		}
	}
	noID := url.Values{"action": {"reset"}, "key": {"acme"}, "policy": {"api"}}
	s.expect("POST", "act", noID, http.StatusBadRequest, "no id")
	raise := url.Values{"action": {"raise"}, "key": {"acme"}, "policy": {"api"}, "units": {"3"}, "id": {"r"},
		"until": {time.Now().Add(time.Hour).Format(time.RFC3339)}}
	status, _, body := s.ask("POST", "act", raise)
	if e := s.events.last(); status != http.StatusConflict || !errors.Is(e.Err, core.ErrCharge) {
		t.Error(status, squeeze(body), fmt.Sprint(e.Err))
	}
}

// What is recorded of a change is what was done: at most what is used comes back.
func TestRecordIsWhatWasDone(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		for i, tt := range []struct {
			used, give, given int64
			status            int
			text              string
		}{
			{2, 10, 2, http.StatusOK, "got 2 of month back."},
			{0, 10, 0, http.StatusConflict, "nothing came back."},
		} {
			name := fmt.Sprint("record-", i)
			if tt.used > 0 {
				decide(t, s.gate, core.Charge{Policy: s.month, Key: newKey(t, name), Cost: tt.used})
			}
			status, _, body := s.ask("POST", "act", url.Values{
				"action": {"give"}, "policy": {"month"}, "key": {name}, "units": {fmt.Sprint(tt.give)}, "id": {name},
			})
			e := s.events.last()
			if status != tt.status || e.Units != tt.given || (e.Err != nil) != (tt.given == 0) || !strings.Contains(squeeze(body), tt.text) {
				t.Errorf("status %d, %+v: %s", status, e, squeeze(body))
			}
		}
		s.expect("POST", "act", url.Values{"action": {"end override"}, "tenant": {"nobody"}, "id": {"end"}}, http.StatusConflict)
		gatetest.Equal(t, s.events.last().Err != nil, true, "it has failed")
	})
}

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
			gatetest.Equal(t, strings.Count(page, `value="`+action+`"`), 1, "forms to %s", action)
			gatetest.Equal(t, formOf(t, page, action).Get("policy"), want, "%s is offered for", action)
		}
		for policy, action := range map[string]string{
			"month": "raise", "typo": "raise", "bans": "block", "typo-bans": "block",
		} {
			order := url.Values{"action": {action}, "policy": {policy}, "key": {"acme"}, "units": {"5"}, "for": {"1h"}}
			s.expect("GET", "confirm?"+order.Encode(), nil, http.StatusBadRequest)
			order.Set("id", policy)
			order.Set("until", time.Now().Add(time.Hour).Format(time.RFC3339))
			s.expect("POST", "act", order, http.StatusConflict)
			gatetest.Equal(t, s.events.last().Err != nil, true, "%s of %s has failed", action, policy)
		}
	})
}

// A block that has ended is not lifted, and not recorded as lifted.
func TestUnblockOfAKeyThatIsNotBlocked(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		key := newKey(t, "acme")
		decide(t, s.gate, core.Charge{Policy: s.bans, Key: key, Cost: 1})
		s.expect("POST", "act", url.Values{"action": {"unblock"}, "policy": {"bans"}, "key": {"acme"}, "id": {"1"}},
			http.StatusConflict, "not blocked any more")
		gatetest.Equal(t, s.events.last().Err != nil, true, "it has failed")
		if strikes, _, _ := s.used(t, s.bans, key); strikes != 1 {
			t.Errorf("%d strikes are left, want 1", strikes)
		}
	})
}
