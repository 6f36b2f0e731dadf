package main

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// newPage returns the page for operators. Whoever reaches their address is one here: in a real
// program Read and Write ask your own authentication.
func newPage(gate *core.Gate, a *api, watch *observers) (*admin.Admin, error) {
	operator := func(*http.Request) (string, error) { return "operator", nil }
	return admin.New(admin.Config{
		Gate: gate, Policies: a.policies, Semaphores: []*semaphore.Semaphore{a.running},
		Live: watch.live, Read: operator, Write: operator, Observe: watch.observe,
		// The keys are hashes of the header: this finds the one of a tenant's name.
		Find: func(_ context.Context, tenant string) (core.Key, bool) {
			hashed, err := a.tenant(&http.Request{Header: http.Header{"X-Tenant": {tenant}}})
			if err != nil {
				return core.Key{}, false
			}
			key, err := core.NewKey(hashed)
			return key, err == nil
		},
	})
}
