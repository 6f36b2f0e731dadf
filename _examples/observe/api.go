package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/plans"
)

// tenants are the customers of the API.
var tenants = []string{"acme", "globex", "initech", "umbrella"}

// api is an API, and what operators ask about.
type api struct {
	http.Handler
	policies []*core.Policy
	running  *semaphore.Semaphore
}

// newAPI returns an API with a limit for each tenant, and a cap on its exports that run at a time. An
// operator may give a tenant another limit, which the book tells. The observer is told of each request
// that a Guard refuses too.
func newAPI(gate *core.Gate, book *plans.Book, watch func(context.Context, core.Event)) (*api, error) {
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
	tenant := func(r *http.Request) (string, error) { // in a real API, what authentication has verified
		return r.Header.Get("X-Tenant"), nil
	}
	reports, err := nethttp.NewGuard(nethttp.Config{
		Gate:    gate,
		Plan:    book.Plan(tenant),
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
	return &api{mux, []*core.Policy{perTenant, stricter}, running}, nil
}

func report(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "your report") }

// export takes its time, so that the page shows who holds a slot.
func export(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(20 * time.Second):
		fmt.Fprintln(w, "your export")
	case <-r.Context().Done(): // the client has left, or the slot is lost, such as to an operator
		http.Error(w, "the export was stopped", http.StatusServiceUnavailable)
	}
}
