package llm_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// The guard of each format tells a tenant the same budget. The request has no body.
func TestGuardTellsBudgets(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	r.answer = chat(7, 11)
	read(t, r.post("/v1/chat/completions", streamed))
	<-r.reports
	for _, format := range []llm.Format{llm.FormatOpenAIChat, llm.FormatOpenAIResponses, llm.FormatAnthropicMessages} {
		for name, used := range map[string]int64{"acme": 18, "other": 0} {
			q, w := httptest.NewRequest(http.MethodGet, "/usage", nil), httptest.NewRecorder()
			q.Header.Set("X-Tenant", name)
			r.meter.Guard(format).Usage().ServeHTTP(w, q)
			var told struct {
				Policies []struct {
					Name    string
					Q, Used int64
					Unit    string `json:"qu"`
				}
			}
			if err := json.Unmarshal(w.Body.Bytes(), &told); err != nil || len(told.Policies) != 1 {
				t.Fatalf("%v: status %d: %s", err, w.Code, w.Body)
			}
			if p := told.Policies[0]; p.Name != "budget" || p.Q != 1000 || p.Used != used ||
				p.Unit != "tokens" {
				t.Errorf("%v tells %s %+v", format, name, p)
			}
		}
	}
}
