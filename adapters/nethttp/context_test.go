package nethttp_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

type testKey struct{}

// An admission makes contexts that do not depend on each other, and they end with their parents.
func TestWithContext(t *testing.T) {
	gate := core.Must(core.NewMemory(core.Config{}))
	g := core.Must(nethttp.Limit(gate, "p", core.PerHour(1), keyfunc.RemoteIP()))
	r := httptest.NewRequest("GET", "/", nil)
	a := g.Admit(r)
	ctx, cancel := context.WithCancel(r.Context())
	first := a.WithContext(ctx)
	second := a.WithContext(context.WithValue(first, testKey{}, "value"))
	for _, c := range []context.Context{first, second} {
		if nethttp.AdmissionFromContext(c) != &a.Admission {
			t.Error("another admission")
		}
	}
	if first.Value(testKey{}) != nil || second.Value(testKey{}) != "value" {
		t.Error("the second context changed the first")
	}
	child, cancelChild := context.WithCancel(second)
	defer cancelChild()
	cancel()
	<-child.Done()
	if first.Err() == nil || second.Err() == nil {
		t.Error("a context outlives its parent")
	}
}
