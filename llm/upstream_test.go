package llm_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A server may answer while it reads the body, and the client of an HTTP/2 server closes it then
// while it reads it.
func TestServerAnswersBeforeItHasRead(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		upstream := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "busy", http.StatusTooManyRequests)
		}))
		upstream.EnableHTTP2 = http2
		upstream.StartTLS()
		r := newRig(t, core.UnitTokens, 1000, nil)
		r.handle(func(w http.ResponseWriter, q *http.Request) {
			out, err := http.NewRequestWithContext(q.Context(), http.MethodPost, upstream.URL, q.Body)
			if err != nil {
				t.Error(err)
				return
			}
			response, err := upstream.Client().Do(out)
			if err != nil {
				http.Error(w, "unreachable", http.StatusBadGateway) // HTTP/1 may reset the connection
				return
			}
			defer response.Body.Close()
			w.WriteHeader(response.StatusCode)
			_, _ = io.Copy(w, response.Body)
		})
		body := `{"model":"m","prompt":"` + strings.Repeat("a", 4<<20) + `"}`
		for range 5 {
			response := r.post(chatPath, body)
			if response.StatusCode != 429 && http2 {
				t.Errorf("status %d", response.StatusCode)
			}
			read(t, response)
			r.want(llm.OutcomeFailed, llm.Usage{}, 0)
		}
		upstream.Close()
	}
}

// limitUnder is a plan.
type limitUnder map[string]core.Algorithm

func (l limitUnder) Algorithm(policy string) core.Algorithm { return l[policy] }

func (limitUnder) Cap(string) (limit, share, floor int64) { return 0, 0, 0 }

// A budget that does not apply to a request is not charged, while the stream runs either.
func TestBudgetsThatDoNotApply(t *testing.T) {
	skipped, users := policy("skipped", core.UnitTokens, 9), policy("users", core.UnitTokens, 9)
	plans := policy("plans", core.UnitTokens, 9)
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.ChargeEvery, cfg.Overrun = 2, llm.OverrunEnd
		cfg.Budgets = append(cfg.Budgets,
			llm.Budget{Policy: skipped, Key: tenant, Skip: func(q *http.Request) bool {
				return q.Header.Get("X-User") == ""
			}},
			llm.Budget{Policy: users, Key: user, NoKey: nethttp.NoKeySkip},
			llm.Budget{Policy: plans, Key: tenant})
		cfg.Guard.Plan = func(*http.Request) (core.Plan, error) {
			return limitUnder{"plans": core.PerMinute(1000)}, nil
		}
	})
	r.handle(events(20, func(w http.ResponseWriter, q *http.Request) { chat(7, 20)(w, q) })) // a charge follows each event
	if body := read(t, r.post(chatPath, small)); !strings.HasSuffix(body, "data: [DONE]\n\n") ||
		strings.Contains(body, "error") {
		t.Errorf("the client was sent %s", body)
	}
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 20}, 27)
	if got := fmt.Sprint(r.peekUsed()[:3]); got != "[27 0 0]" {
		t.Errorf("%s are used", got)
	}
}

// A request without the key of a budget is refused, in the format of its API.
func TestBudgetWithoutKey(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1000, nil)
	q := r.request(messagesPath, `{"model":"m"}`)
	q.Header.Del("X-Tenant")
	response, err := plainClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	if body := read(t, response); response.StatusCode != 400 ||
		!strings.Contains(body, `"invalid_request_error"`) {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	r.unasked()
}
