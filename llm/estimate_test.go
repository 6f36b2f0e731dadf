package llm_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/llm"
)

// usages is a handler of chats that states the usage that a test chooses.
type usages struct{ input, output int64 }

func (u *usages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct{ Stream bool }
	_ = json.NewDecoder(r.Body).Decode(&body)
	usage := fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`,
		u.input, u.output)
	if !body.Stream {
		fmt.Fprint(w, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "%sdata: %s\n\ndata: [DONE]\n\n", word, usage)
}

// estimateOf sends a chat of a model, with a prompt of 4,000 bytes and room for 1,000 tokens.
func estimateOf(h http.Handler, model string) {
	q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(
		fmt.Sprintf(`{"model":%q,"max_tokens":1000,"prompt":%q}`, model,
			strings.Repeat("a", 4000))))
	q.Header.Set("X-Tenant", "acme")
	h.ServeHTTP(httptest.NewRecorder(), q)
}

func near(t *testing.T, what string, got, want int64) {
	t.Helper()
	if float64(got) < 0.9*float64(want) || float64(got) > 1.1*float64(want) {
		t.Errorf("%s: an estimate of %d is not within 10 %% of %d", what, got, want)
	}
}

// Within 20 requests the estimate is within 10 % of the mean, for each model of its own. Models
// that are not known share what is learnt.
func TestEstimateConverges(t *testing.T) {
	r := newRig(t, core.UnitTokens, 1_000_000, func(cfg *llm.Config) {
		cfg.UnknownModel = llm.UnknownModelDearest
		cfg.Models = map[string]llm.Model{"terse": {}, "verbose": {}, "unused": {}}
	})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	noisy := func(n int64) int64 { return n*9/10 + random.Int64N(n/5+1) } // 10 % to either side
	u := new(usages)
	h := r.meter.Handler(u)
	next := func(model string) llm.Usage {
		estimateOf(h, model)
		return (<-r.reports).Estimate
	}
	means := map[string]usages{"terse": {700, 100}, "verbose": {3000, 900}, "other": {250, 500}}
	for range 20 {
		for model, mean := range means {
			u.input, u.output = noisy(mean.input), noisy(mean.output)
			next(model)
		}
	}
	means["another"] = means["other"]
	for model, mean := range means {
		*u = mean
		got := next(model)
		near(t, model, got.Input, mean.input)
		near(t, model, got.Output, mean.output)
	}
	if got := next("unused"); got != (llm.Usage{Input: 1000, Output: 1000}) {
		t.Errorf("the estimate of a model without requests is %+v", got)
	}
}

// A response with a wrong usage moves an estimate by at most 16 times, and is forgotten like any
// other.
func TestHostileUsage(t *testing.T) {
	for _, hostile := range []usages{{1e15, 1e15}, {0, 0}, {1, 1}, {1e18, 0}} {
		r := newRig(t, core.UnitTokens, 100, nil)
		u := new(usages)
		h := r.meter.Handler(u)
		next := func() llm.Usage {
			gatetest.NoError(t, r.gate.Reset(t.Context(), r.charge()))
			estimateOf(h, "m")
			return (<-r.reports).Estimate
		}
		*u = hostile
		next()
		*u = usages{1000, 500}
		if got := next(); got.Input < 1000/16 || got.Input > 16_000 || got.Output < 1000/16 ||
			got.Output > 1000 {
			t.Errorf("after %+v the estimate is %+v", hostile, got)
		}
		for range 80 {
			next()
		}
		near(t, fmt.Sprint(hostile), next().Input, 1000)
		near(t, fmt.Sprint(hostile), next().Output, 500)
	}
}

// charge returns the charge of acme under the budget.
func (r *rig) charge() core.Charge {
	r.Helper()
	key := core.Must(core.NewKey(core.Must(tenant(r.request(chatPath, "")))))
	return core.Charge{Policy: r.budget, Key: key, Cost: core.NoCost}
}

// A stream that is cut pays what it has shown, whatever other requests have taught of the model.
func TestCutStreamPaysWhatItHasShown(t *testing.T) {
	r := newRig(t, core.UnitTokens, 100_000, nil)
	r.answer = func(w http.ResponseWriter, q *http.Request) { (&usages{7, 5}).ServeHTTP(w, q) } // of one event
	r.handle(func(w http.ResponseWriter, q *http.Request) { r.answer(w, q) })
	for range 5 {
		read(t, r.post(chatPath, streamed))
		<-r.reports
	}
	r.answer = events(10, abort)
	if response, err := plainClient.Do(r.request(chatPath, streamed)); err == nil {
		response.Body.Close()
	}
	if report := <-r.reports; report.Outcome != llm.OutcomeCut || report.Usage.Output != 10 {
		t.Errorf("%+v", report)
	}
}
