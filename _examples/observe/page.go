package main

import (
	"net/http"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/plans"
)

// newPage returns the page for operators. Whoever reaches their address is one here: in a real
// program Read and Write ask your own authentication.
func newPage(gate *core.Gate, book *plans.Book, a *api, watch *observers) (*admin.Admin, error) {
	operator := func(*http.Request) (string, error) { return "operator", nil }
	return admin.New(admin.Config{
		Gate: gate, Policies: a.policies, Semaphores: []*semaphore.Semaphore{a.running}, Plans: book,
		Live: watch.live, Read: operator, Write: operator, Observe: watch.observe,
	})
}
