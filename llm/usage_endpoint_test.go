package llm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

// Requests that run at once may spend more than is left. All of it is owed, and the guard of each
// format tells the tenant so.
func TestAllThatIsSpentIsOwed(t *testing.T) {
	const requests, limit, spent = 50, 100_000, 60_000
	r := newRig(t, core.UnitMicroDollars, limit, func(cfg *llm.Config) {
		cfg.Models = map[string]llm.Model{"m": {Tariff: llm.Tariff{Price: llm.Price{Input: llm.Free, Output: 1_000_000}}}}
	})
	var running, all sync.WaitGroup
	running.Add(requests)
	r.answer = func(w http.ResponseWriter, _ *http.Request) {
		running.Done()
		running.Wait()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, usageChunk+"data: [DONE]\n\n", 1, spent)
	}
	for range requests {
		all.Go(func() { read(t, r.post(chatPath, `{"model":"m","max_tokens":2000,"stream":true}`)) })
	}
	all.Wait()
	gatetest.Equal(t, r.used(), requests*spent, "units used")
	for _, format := range []llm.Format{llm.FormatOpenAIChat, llm.FormatOpenAIResponses, llm.FormatAnthropicMessages} {
		for tenant, used := range map[string]string{"acme": `"used":3000000,"r":0,`, "other": `"used":0,"r":100000}`} {
			q, w := httptest.NewRequest(http.MethodGet, "/usage", nil), httptest.NewRecorder()
			q.Header.Set("X-Tenant", tenant)
			r.meter.Guard(format).Usage().ServeHTTP(w, q)
			if told := w.Body.String(); !strings.Contains(told, `"q":100000,`) || !strings.Contains(told, used) {
				t.Errorf("%v tells %s %s", format, tenant, told)
			}
		}
	}
}
