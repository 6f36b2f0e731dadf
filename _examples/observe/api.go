package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/keyfunc"
)

// tenants are the customers of the API. The page shows these names for the hashes in keys.
var tenants = []string{"acme", "globex", "initech", "umbrella"}

// api is an API, and what operators ask about.
type api struct {
	http.Handler
	policies []*core.Policy
	running  *semaphore.Semaphore
	tenant   func(*http.Request) (string, error) // the key of the client
}

// newAPI returns an API with a limit for each tenant, and a cap on its exports that run at a time. The
// observer is told of each request that a Guard refuses too.
func newAPI(gate *core.Gate, watch func(context.Context, core.Event)) (*api, error) {
	perTenant, err := core.NewPolicy(core.PolicyConfig{
		Name: "reports", Algorithm: core.TokenBucket{Rate: 60, Per: time.Minute, Burst: 20},
	})
	if err != nil {
		return nil, err
	}
	// A Shadow policy denies nothing: the metrics show what it would deny.
	stricter, err := core.NewPolicy(core.PolicyConfig{
		Name: "stricter", Algorithm: core.PerMinute(10), Shadow: true,
	})
	if err != nil {
		return nil, err
	}
	running, err := semaphore.New(gate, semaphore.Config{Name: "running"})
	if err != nil {
		return nil, err
	}
	tenant := keyfunc.Must(keyfunc.Header("X-Tenant")) // in a real API, what authentication has verified
	reports, err := nethttp.NewGuard(nethttp.Config{
		Gate:    gate,
		Rules:   []nethttp.Rule{{Policy: perTenant, Key: tenant}, {Policy: stricter, Key: tenant}},
		Observe: watch,
	})
	if err != nil {
		return nil, err
	}
	exports, err := nethttp.NewGuard(nethttp.Config{
		Gate: gate,
		Slot: &nethttp.Slot{
			Semaphore: running, MaxWait: time.Second,
			Caps: []nethttp.Cap{{Name: "running", Key: tenant, Limit: 2}},
		},
		Observe: watch,
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /reports", reports.Handler(http.HandlerFunc(report)))
	mux.Handle("GET /exports", exports.Handler(http.HandlerFunc(export)))
	return &api{mux, []*core.Policy{perTenant, stricter}, running, tenant}, nil
}

func report(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "your report") }

// export takes its time, so that the page shows who holds a slot.
func export(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(20 * time.Second):
		fmt.Fprintln(w, "your export")
	case <-r.Context().Done(): // the client has left, or an operator has evicted it
	}
}

// keyOf returns the key of a tenant.
func (a *api) keyOf(tenant string) (core.Key, error) {
	hashed, err := a.tenant(&http.Request{Header: http.Header{"X-Tenant": {tenant}}})
	if err != nil {
		return core.Key{}, err
	}
	return core.NewKey(hashed)
}
