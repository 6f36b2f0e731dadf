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
	names := make(map[core.Key]string)
	for _, tenant := range tenants {
		key, err := a.keyOf(tenant)
		if err != nil {
			return nil, err
		}
		names[key] = tenant
	}
	return admin.New(admin.Config{
		Gate: gate, Policies: a.policies, Semaphores: []*semaphore.Semaphore{a.running},
		Live: watch.live, Read: operator, Write: operator, Observe: watch.observe,
		// The keys are hashes of the header. Name and Find turn them into names and back.
		Name: func(k core.Key) string { return names[k] },
		Find: func(_ context.Context, tenant string) (core.Key, bool) {
			key, err := a.keyOf(tenant)
			return key, err == nil
		},
	})
}
