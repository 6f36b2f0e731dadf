package llm_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

type tenantName struct{}

// Observe receives one event for an admitted request, with the request as the handlers around the
// Meter have passed it on. A refused request has none.
func TestEventHasItsRequest(t *testing.T) {
	var events []string
	r := newRig(t, core.UnitTokens, 60, func(cfg *llm.Config) {
		cfg.Observe = func(ctx context.Context, e core.Event) {
			response, ok := e.(*llm.ResponseEvent)
			if !ok || ctx != response.HTTP.Context() || response.HTTP.Pattern != "POST /v1/" {
				t.Errorf("%T %+v", e, response)
				return
			}
			name, _ := ctx.Value(tenantName{}).(string)
			events = append(events, e.EventName()+" of "+name+": "+response.Outcome.String())
		}
	})
	mux := http.NewServeMux()
	mux.Handle("POST /v1/", r.meter.Handler(http.HandlerFunc(chat(7, 50))))
	for range 2 {
		q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(streamed))
		q.Header.Set("X-Tenant", "acme")
		mux.ServeHTTP(httptest.NewRecorder(),
			q.WithContext(context.WithValue(q.Context(), tenantName{}, "acme")))
	}
	if got := strings.Join(events, ", "); got != "response of acme: reported" {
		t.Error(got)
	}
}
