package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/plans"
)

// service is the API.
type service struct {
	gate  *core.Gate
	book  *plans.Book
	month *core.Policy
	guard *nethttp.Guard
	db    *database
}

// newService returns the API on Redis, or in memory if the client is nil. A decision takes so long at
// most; 0 is the default of a Gate.
func newService(
	client redis.UniversalClient, file string, db *database, timeout time.Duration,
) (s *service, err error) {
	s = &service{db: db}
	cfg := core.Config{Observe: s.observe, Timeout: timeout}
	if client == nil {
		s.gate, err = core.NewMemory(cfg)
	} else {
		s.gate, err = core.NewRedis(client, cfg)
	}
	if err != nil {
		return nil, err
	}
	s.book, err = plans.New(plans.Config{
		File: file, Client: client, Resolve: db.planOf,
		Observe: func(_ context.Context, e core.Event) {
			if e := e.(*plans.Event); e.Err != nil {
				log.Printf("%v: %v", e.Op, e.Err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	if s.guard, err = s.newGuard(); err != nil {
		s.book.Close()
		return nil, err
	}
	return s, nil
}

// newGuard returns the limits of the API. Each is that of the tenant's plan.
func (s *service) newGuard() (*nethttp.Guard, error) {
	requests, err := core.NewPolicy(core.PolicyConfig{
		Name: "requests", Algorithm: core.PerMinute(10),
	})
	if err != nil {
		return nil, err
	}
	s.month, err = core.NewPolicy(core.PolicyConfig{
		Name: "month", OnFailure: core.FailClosed,
		Algorithm:  core.DenyAll{}, // of a plan without one
		Ledger:     s.usedBefore,
		Raisable:   true,
		Thresholds: []int{80, 90, 100},
	})
	if err != nil {
		return nil, err
	}
	running, err := semaphore.New(s.gate, semaphore.Config{Name: "running"})
	if err != nil {
		return nil, err
	}
	tenant := keyfunc.Must(keyfunc.ContextValue(tenantKey{}))
	return nethttp.NewGuard(nethttp.Config{
		Gate: s.gate, Plan: s.book.Plan(tenant),
		Rules: []nethttp.Rule{
			{Policy: requests, Key: tenant},
			{Policy: s.month, Key: tenant, Settle: nethttp.RefundServerErrors},
		},
		Slot: &nethttp.Slot{Semaphore: running, Caps: []nethttp.Cap{{
			Name: "running", Key: tenant, Limit: 1,
		}}},
	})
}

// usedBefore tells Redis what a tenant has used and bought, when Redis does not know it.
func (s *service) usedBefore(ctx context.Context, key core.Key, period core.Span) (int64, error) {
	tenant := key.Parts()[0]
	for _, t := range s.db.topUps(tenant) {
		if err := s.raise(ctx, key, t); err != nil {
			return 0, err
		}
	}
	return s.db.usedIn(tenant, period), nil
}

// raise raises the quota of the plan that a key's tenant has.
func (s *service) raise(ctx context.Context, key core.Key, t topUp) error {
	plan, err := s.book.For(ctx, key.Parts()[0])
	if err != nil {
		return err
	}
	_, err = s.gate.Adjust(ctx, core.Adjustment{
		ID: t.id, Policy: s.month, Key: key, Limit: plan.Algorithm("month"),
		Raise: t.units, Until: t.until,
	})
	return err
}

// observe logs what an operator wants to know.
func (s *service) observe(_ context.Context, e core.Event) {
	switch e := e.(type) {
	case *core.ThresholdEvent:
		log.Printf("%s has used %d of %d: %d %%", e.Key, e.Used, e.Limit, e.Percent)
	case *core.KeyEvent:
		if e.Err != nil {
			log.Printf("%v: %v", e.Op, e.Err)
		}
	}
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /answer", asTenant(s.guard.Handler(http.HandlerFunc(s.answer))))
	mux.Handle("GET /usage", asTenant(s.guard.Usage()))
	mux.Handle("PUT /tenants/{tenant}/plan/{plan}", asOperator(s.changePlan))
	mux.Handle("PUT /tenants/{tenant}/topups/{id}", asOperator(s.topUp))
	return mux
}

func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	s.db.addUse(r.Context().Value(tenantKey{}).(string), 1)
	fmt.Fprintln(w, "42")
}

// changePlan gives a tenant another plan. Every process obeys it within a second.
func (s *service) changePlan(w http.ResponseWriter, r *http.Request) {
	tenant, plan := r.PathValue("tenant"), r.PathValue("plan")
	if _, ok := s.book.Set().Plan(plan); !ok {
		http.Error(w, "there is no such plan", http.StatusNotFound)
		return
	}
	s.db.setPlan(tenant, plan)
	respond(w, s.book.Refresh(r.Context(), tenant))
}

// topUp raises a tenant's quota for two weeks, once for each id.
func (s *service) topUp(w http.ResponseWriter, r *http.Request) {
	units, err := strconv.ParseInt(r.FormValue("units"), 10, 64)
	if err != nil || units < 1 {
		http.Error(w, "units must be a positive number", http.StatusBadRequest)
		return
	}
	key, err := core.NewKey(r.PathValue("tenant"))
	if err != nil {
		http.Error(w, "the tenant is not valid", http.StatusBadRequest)
		return
	}
	until := time.Now().AddDate(0, 0, 14)
	t := s.db.buy(r.PathValue("tenant"), topUp{r.PathValue("id"), units, until})
	respond(w, s.raise(r.Context(), key, t))
}

func respond(w http.ResponseWriter, err error) {
	if err != nil {
		log.Print(err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// tenantKey is the context key of the tenant that has authenticated.
type tenantKey struct{}

// apiKeys are the keys of tenants. A real API looks them up.
var apiKeys = map[string]string{"acme-key": "acme", "initech-key": "initech"}

const operatorKey = "operator-key"

// asTenant lets requests of tenants through.
func asTenant(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tenant, ok := apiKeys[r.Header.Get("X-Api-Key")]
		if !ok {
			http.Error(w, "the API key is not valid", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), tenantKey{}, tenant)))
	})
}

// asOperator lets requests of the operator through.
func asOperator(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Api-Key") != operatorKey {
			http.Error(w, "this is for operators", http.StatusUnauthorized)
			return
		}
		next(w, r)
	})
}
