package llm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// Requests that run at once may spend more than is left. All of it is owed, and the tenant is told so.
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
	if n := r.used(); n != requests*spent {
		t.Errorf("%d are used, want %d", n, requests*spent)
	}
	q, w := httptest.NewRequest(http.MethodGet, "/usage", nil), httptest.NewRecorder()
	q.Header.Set("X-Tenant", "acme")
	r.meter.Guard(llm.FormatOpenAIChat).Usage().ServeHTTP(w, q)
	if told := w.Body.String(); !strings.Contains(told, `"q":100000,`) || !strings.Contains(told, `"used":3000000,"r":0,`) {
		t.Error(told)
	}
}

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
