package browser

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/hub"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/plans"
)

// patience bounds waits for what must happen. It is long, so that a busy machine fails no test.
const patience = 30 * time.Second

// scene is a service with a page, of which some tenants ask for more than they have.
type scene struct {
	t       *testing.T
	gate    *core.Gate
	api     *core.Policy
	month   *core.Policy
	search  *core.Policy
	bans    *core.Policy
	streams *semaphore.Semaphore
	page    string // its address
}

// play plays the service, whose policies are stated as those of Guards are.
func play(t *testing.T) *scene {
	t.Helper()
	client := redistest.Start(t).Client(t)
	live := new(admin.Live)
	gate := core.Must(core.NewRedis(client, core.Config{
		Timeout: patience, Observe: live.Observe, DisableDenialCache: true,
	}))
	policy := func(cfg core.PolicyConfig) *core.Policy { return gatetest.Policy(t, cfg) }
	s := &scene{
		t: t, gate: gate, streams: core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"})),
		api: policy(core.PolicyConfig{Name: "api", Algorithm: core.PerMinute(60)}),
		month: policy(core.PolicyConfig{Name: "month", Unit: core.UnitTokens, Raisable: true,
			Algorithm: core.Calendar{Limit: 2_000_000, Every: core.PeriodMonth, In: time.UTC}}),
		search: policy(core.PolicyConfig{Name: "search", Algorithm: core.AnyMinute(30)}),
		bans: policy(core.PolicyConfig{Name: "bans", Algorithm: core.Block{
			Strikes: 5, Within: 10 * time.Minute, For: time.Hour, Most: 24 * time.Hour}}),
	}
	set := core.Must(plans.NewSet(plans.SetConfig{Default: "free", Plans: map[string]plans.Plan{
		"free": {Limits: map[string]core.Algorithm{"api": core.PerMinute(60)}},
		"pro":  {Limits: map[string]core.Algorithm{"api": core.PerMinute(600)}},
	}}))
	book := core.Must(plans.New(plans.Config{Set: set, Client: client}))
	t.Cleanup(book.Close)
	operator := func(r *http.Request) (string, error) { return "kim", nil }
	page := core.Must(admin.New(admin.Config{
		Gate: gate, Policies: []*core.Policy{s.api, s.month, s.search, s.bans},
		Semaphores: []*semaphore.Semaphore{s.streams}, Plans: book, Live: live,
		Read: operator, Write: operator,
	}))
	mux := http.NewServeMux()
	mux.Handle("/ops/headgate/", http.StripPrefix("/ops/headgate", page))
	site := httptest.NewServer(mux)
	t.Cleanup(func() {
		site.CloseClientConnections()
		site.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		gatetest.Worked(t, gate.Close(ctx))
	})
	s.page = site.URL + "/ops/headgate/"
	policies := []*core.Policy{s.api, s.month, s.search, s.bans}
	for _, p := range policies {
		core.Inside(hub.Pass{}).State(gate, p, false)
	}
	gatetest.Eventually(t, "the policies are stated", func() bool {
		all, err := inspect.ReadStated(t.Context(), client, "hg:")
		return err == nil && len(all) == len(policies)
	})
	return s
}

func (s *scene) key(outermost string, inner ...string) core.Key {
	s.t.Helper()
	return gatetest.Key(s.t, outermost, inner...)
}

func (s *scene) decide(charges ...core.Charge) core.Decision {
	s.t.Helper()
	return gatetest.Decide(s.t, s.gate, charges...)
}

// exhaust spends the month of acme, and lets it ask again.
func (s *scene) exhaust() {
	s.t.Helper()
	acme := s.key("acme")
	s.decide(core.Charge{Policy: s.month, Key: acme, Cost: 2_000_000})
	for range 3 {
		s.decide(core.Charge{Policy: s.month, Key: acme})
	}
}

// hold takes a slot until the test ends, and returns the lease.
func (s *scene) hold(outermost, user string, limit int64, meta map[string]string) *semaphore.Lease {
	s.t.Helper()
	l := gatetest.Must(s.streams.Acquire(s.t.Context(), s.request(outermost, user, limit, meta)))(s.t)
	s.t.Cleanup(func() { _ = l.Release(context.Background()) })
	return l
}

func (s *scene) request(outermost, user string, limit int64, meta map[string]string) semaphore.Request {
	return semaphore.Request{Meta: meta, Caps: []semaphore.Cap{
		{Key: s.key(outermost), Limit: limit}, {Key: s.key(outermost, user), Limit: limit},
	}}
}

// queue waits for a slot until the test ends.
func (s *scene) queue(outermost, user string, limit int64, meta map[string]string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	queued, left := make(chan int, 100), make(chan struct{})
	r := s.request(outermost, user, limit, meta)
	r.MaxWait = semaphore.Forever
	r.OnQueue = func(place int) { queued <- place }
	go func() {
		defer close(left)
		if l, err := s.streams.Acquire(ctx, r); err == nil {
			_ = l.Release(context.Background())
		}
	}()
	s.t.Cleanup(func() { cancel(); <-left })
	select {
	case <-queued:
	case <-left:
		s.t.Fatal("the caller does not wait")
	}
}

// traffic lets tenants ask until ctx ends.
func (s *scene) traffic(ctx context.Context) {
	rng := rand.New(rand.NewPCG(1, 2))
	users := []struct {
		tenant, user string
		weight       int
	}{
		{"acme", "bob", 60}, {"acme", "ann", 12}, {"globex", "eve", 25}, {"initech", "peter", 9},
		{"umbrella", "ada", 4}, {"hooli", "gavin", 3},
	}
	var all []int
	for i, u := range users {
		for range u.weight {
			all = append(all, i)
		}
	}
	acme := s.key("acme")
	for n := 0; ctx.Err() == nil; n++ {
		u := users[all[rng.IntN(len(all))]]
		k := s.key(u.tenant, u.user)
		charge := core.Charge{Policy: s.api, Key: k}
		switch {
		case rng.IntN(4) == 0:
			charge.Policy = s.search
		case u.tenant == "acme" && rng.IntN(5) == 0:
			charge = core.Charge{Policy: s.month, Key: acme, Cost: 500 + rng.Int64N(2000)}
		}
		_, err := s.gate.Decide(ctx, charge)
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			s.t.Error(err)
		}
		wave := 20 + 14*float64(n%700)/700
		select {
		case <-time.After(time.Duration(rng.ExpFloat64() * wave * float64(time.Millisecond))):
		case <-ctx.Done():
		}
	}
}

// busy plays traffic for a time, with streams and waiters of acme.
func (s *scene) busy(d time.Duration) {
	s.t.Helper()
	s.decide(core.Charge{Policy: s.month, Key: s.key("acme"), Cost: 1_990_000})
	for i, user := range []string{"bob", "ann", "bob"} {
		s.hold("acme", user, 3, map[string]string{
			"request": fmt.Sprintf("req_%04x", 0x7a31+97*i), "model": "large", "route": "/v1/chat",
		})
	}
	s.queue("acme", "bob", 3, map[string]string{"request": "req_7c11", "model": "large"})
	s.queue("acme", "ann", 3, map[string]string{"request": "req_7c90", "model": "small"})
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	s.traffic(ctx)
}
