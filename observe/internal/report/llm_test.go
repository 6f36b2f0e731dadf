package report_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/eventtest"
	"github.com/headgate/headgate/internal/series"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/observe/internal/report"
)

// answer answers each chat as the model that it names, and states 7 tokens in and 3 out. A chat for
// "broken" gets an error.
func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, name, _ := strings.Cut(string(body), `"model":"`)
	name, _, _ = strings.Cut(name, `"`)
	w.Header().Set("Content-Type", "application/json")
	if name == "broken" {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"error":{"message":"no"}}`)
		return
	}
	fmt.Fprintf(w, `{"model":%q,"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}`, name)
}

// A client that invents models makes no series, if the configuration has models. Without any, the
// names in answers are the labels.
func TestModelsAsLabels(t *testing.T) {
	known := map[string]llm.Model{"small": {}}
	for name, tt := range map[string]struct {
		models map[string]llm.Model
		want   map[string]float64
	}{
		"models": {known, map[string]float64{
			"small,reported": 1, "other,reported": 2, "other,failed": 1,
		}},
		"no models": {nil, map[string]float64{
			"small,reported": 1, "invented-1,reported": 1, "invented-2,reported": 1, "other,failed": 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := newRecorder(t, report.Config{})
			meter := core.Must(llm.New(llm.Config{
				Guard: nethttp.Config{Gate: eventtest.Gate(t, core.Config{})},
				Budgets: []llm.Budget{{
					Policy: core.Must(core.NewPolicy(core.PolicyConfig{
						Name: "tokens", Algorithm: core.PerMinute(1_000_000), Unit: core.UnitTokens,
						Hold: time.Minute,
					})),
					Key: keyfunc.RemoteIP(),
				}},
				Models: tt.models, UnknownModel: llm.UnknownModelDearest, Observe: r.Observe,
			}))
			handler := meter.Handler(http.HandlerFunc(answer))
			for _, model := range []string{"small", "invented-1", "invented-2", "broken"} {
				body := strings.NewReader(fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, model))
				q := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", body)
				q.Header.Set("Content-Type", "application/json")
				handler.ServeHTTP(httptest.NewRecorder(), q)
			}
			got := make(map[string]float64)
			tokens := 0.0
			for line, n := range l.lines {
				if rest, ok := strings.CutPrefix(line, series.Responses.Name+" "); ok {
					got[rest] = n
				}
				if strings.HasPrefix(line, series.Tokens.Name+" ") {
					tokens += n
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) || tokens != 30 {
				t.Errorf("responses %v and %v tokens, want %v and 30", got, tokens, tt.want)
			}
		})
	}
}
