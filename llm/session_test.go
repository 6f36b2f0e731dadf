package llm_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm"
)

// A session has one budget until nothing was charged for its Per. It is refused for good when that is
// spent, and other sessions are not.
func TestSessionBudget(t *testing.T) {
	clock := core.NewManualClock(time.Unix(1_800_000_000, 0))
	run := core.Must(core.NewPolicy(core.PolicyConfig{
		Name: "run", Unit: core.UnitTokens, Hold: time.Minute,
		Algorithm: core.TokenBucket{Burst: 40, Per: time.Hour},
	}))
	r := newRig(t, core.UnitTokens, 1e6, func(cfg *llm.Config) {
		cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
		cfg.Budgets = append(cfg.Budgets,
			llm.Budget{Policy: run, Key: keyfunc.Must(keyfunc.Header("X-Session"))})
	})
	r.answer = chat(15, 5)
	ask := func(session string) (int, string) {
		response := r.post(chatPath, `{"model":"m","stream":true,"max_tokens":5}`, "X-Session", session)
		body := read(t, response)
		if response.StatusCode == 200 {
			<-r.reports // its charge is settled
		}
		return response.StatusCode, body
	}
	for _, c := range []struct {
		pause   time.Duration
		session string
		want    int
	}{
		{0, "a", 200}, {59 * time.Minute, "a", 200}, {0, "a", 429}, {0, "b", 200},
		{59 * time.Minute, "a", 429}, {time.Minute, "a", 200},
	} {
		clock.Advance(c.pause)
		status, body := ask(c.session)
		if status != c.want || status == 429 && !strings.Contains(body, "insufficient_quota") {
			t.Errorf("%s after %v: %d %s, want %d", c.session, c.pause, status, body, c.want)
		}
	}
}
