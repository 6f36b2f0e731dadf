package llm_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm"
)

// A stream keeps what it holds, its running charges included, and settles it after an hour as after
// a second. It needs no slot for that.
func TestStreamKeepsItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := core.Must(core.NewMemory(core.Config{}))
		defer func() { _ = gate.Close(t.Context()) }()
		p := policy("budget", core.UnitTokens, 1000)
		m, err := llm.New(llm.Config{
			Guard: nethttp.Config{Gate: gate}, Budgets: []llm.Budget{{Policy: p, Key: tenant}}, ChargeEvery: 10,
		})
		if err != nil {
			t.Fatal(err)
		}
		q := httptest.NewRequest(http.MethodPost, chatPath, strings.NewReader(small)) // 3 + 5
		q.Header.Set("X-Tenant", "acme")
		charge := core.Charge{Policy: p, Key: core.Must(core.NewKey(core.Must(tenant(q)))), Cost: core.NoCost}
		used := func() int64 {
			d, err := gate.Peek(t.Context(), charge)
			if err != nil {
				t.Fatal(err)
			}
			return d.At(0).Used
		}
		m.Handler(events(6, func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Hour)
			if n := used(); n != 18 {
				t.Errorf("%d units are used after an hour", n)
			}
			chat(7, 11)(w, r)
		})).ServeHTTP(httptest.NewRecorder(), q)
		time.Sleep(time.Hour)
		if n := used(); n != 18 {
			t.Errorf("%d units are used afterwards", n)
		}
	})
}

// What is held goes back if nobody renews it, as when its process has died: the estimate and the
// running charges. A process that was only paused settles what the stream has used.
func TestAbandonedHoldsGoBack(t *testing.T) {
	clock := core.NewManualClock(time.Date(2026, 2, 2, 0, 0, 0, 0, time.UTC))
	r := newRig(t, core.UnitTokens, 1000, func(cfg *llm.Config) {
		cfg.Guard.Gate = core.Must(core.NewMemory(core.Config{Clock: clock.Now}))
		cfg.ChargeEvery = 10
	})
	r.handle(events(6, func(w http.ResponseWriter, q *http.Request) {
		clock.Advance(time.Minute - time.Microsecond)
		if n := r.used(); n != 18 {
			t.Errorf("%d units are used before the hold ends", n)
		}
		clock.Advance(time.Microsecond)
		if n := r.used(); n != 0 {
			t.Errorf("%d units are used after the hold", n)
		}
		chat(7, 11)(w, q)
	}))
	read(t, r.post(chatPath, small))
	r.want(llm.OutcomeReported, llm.Usage{Input: 7, Output: 11}, 18)
}
