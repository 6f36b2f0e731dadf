package nethttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/keyfunc"
)

// A handler need not know whether a Guard or a Replay has left its request alone.
func TestHandlersOfSkippedRequests(t *testing.T) {
	gate := core.Must(core.NewMemory(core.Config{}))
	t.Cleanup(func() { _ = gate.Close(t.Context()) })
	policy := core.Must(core.NewPolicy(core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(1)}))
	skipping := core.Must(nethttp.NewGuard(nethttp.Config{
		Gate: gate, Rules: []nethttp.Rule{{Policy: policy, Key: keyfunc.RemoteIP()}},
		Skip: func(*http.Request) bool { return true },
	}))
	cfg := nethttp.ReplayConfig{
		Once: core.Must(once.New(gate, once.Config{Name: "o", Window: time.Hour})),
		ID:   keyfunc.Must(keyfunc.Header("Idempotency-Key")), NoID: nethttp.NoKeySkip,
	}
	for name, g := range map[string]nethttp.Admitter{
		"Guard": skipping, "Replay": core.Must(nethttp.NewReplay(nil, cfg)),
		"Replay around a Guard": core.Must(nethttp.NewReplay(skipping, cfg)),
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				a := nethttp.AdmissionFromContext(r.Context())
				a.Fail()
				if a.Written() != 0 || a.Lease() != nil || a.Plan() != nil || a.Decision().Len() != 0 {
					t.Errorf("%+v", a)
				}
			})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil))
			if w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
		})
	}
}
