package recipes

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/keyfunc"
)

// Payments lets a tenant repeat a payment whose answer was lost: pay handles each Idempotency-Key of a
// tenant once a day, and a retry gets the same answer, which Redis keeps sealed. The first key seals;
// earlier ones open what they have sealed. A client that leaves does not end its payment.
func Payments(gate *core.Gate, pay http.Handler, keys ...[]byte) http.Handler {
	id := keyfunc.Must(keyfunc.Header("Idempotency-Key"))
	repeated := core.Must(nethttp.NewReplay(nil, nethttp.ReplayConfig{
		Once:    core.Must(once.New(gate, once.Config{Name: "payments", Window: 24 * time.Hour})),
		ID:      keyfunc.Must(keyfunc.Join(byTenant, id)),
		MaxWait: 5 * time.Second, // for the answer of a request that runs
		Answers: nethttp.Answers{Keys: keys},
		// A payment that the bank has declined is declined for good.
		Succeeded: func(_ *http.Request, status int) bool {
			return status < http.StatusBadRequest || status == http.StatusPaymentRequired
		},
	})).Handler(pay)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		repeated.ServeHTTP(w, r.WithContext(context.WithoutCancel(r.Context())))
	})
}
