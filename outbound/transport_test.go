package outbound_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

func TestRulesAdmitTheirLimit(t *testing.T) {
	eachGate(t, func(t *testing.T, g *core.Gate) {
		u := serve(t, nil)
		tr := transport(t, outbound.Config{
			Base: base(t), Gate: g,
			Rules: []outbound.Rule{
				{Policy: gatetest.Limited(t, "a", gatetest.Frozen(3)), Key: outbound.ByHost},
				{Policy: gatetest.Limited(t, "b", core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 10}), Key: outbound.ByCredential},
			},
		})
		for range 3 {
			if status, err := get(t, tr, u.URL); status != http.StatusOK || err != nil {
				t.Fatal(status, err)
			}
		}
		_, err := get(t, tr, u.URL)
		if busy := wantBusy(t, err, "a"); busy.After != core.Never || !busy.At.IsZero() || busy.Spent {
			t.Errorf("%+v", busy)
		}
		if n := u.count(); n != 3 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

// A request that waits is sent when there is room, and one that would wait for too long fails at
// once.
func TestWait(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate) {
		t.Parallel()
		u := serve(t, nil)
		tr := transport(t, outbound.Config{
			Base: base(t), Gate: g, MaxWait: 250 * time.Millisecond,
			Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "a", core.TokenBucket{Rate: 10, Per: time.Second, Burst: 1}), Key: outbound.ByHost,
			}},
		})
		start := time.Now()
		for range 3 {
			if _, err := get(t, tr, u.URL); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took < 190*time.Millisecond {
			t.Errorf("3 requests at 10 a second after %v", took)
		}
		late := transport(t, outbound.Config{
			Base: base(t), Gate: g, MaxWait: 250 * time.Millisecond,
			Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "b", core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 1}), Key: outbound.ByHost,
			}},
		})
		if _, err := get(t, late, u.URL); err != nil {
			t.Fatal(err)
		}
		_, err := get(t, late, u.URL)
		busy := wantBusy(t, err, "b")
		if busy.After < 59*time.Minute || busy.After > time.Hour || busy.At.IsZero() || busy.Cause != nil {
			t.Errorf("%+v", busy)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = late.RoundTrip(request(t, ctx, u.URL))
		wantBusy(t, err, "b")
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			t.Errorf("%v, %v", err, ctx.Err())
		}
	})
}

// A cooldown holds for the account that was refused, at no further round trip, and ends.
func TestRefusalCools(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate) {
		t.Parallel()
		refuse := true
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if refuse {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(http.StatusTooManyRequests)
				_, _ = io.WriteString(w, "slow down")
			}
			refuse = false
		})
		tr := transport(t, outbound.Config{Base: base(t), Gate: g})
		start := time.Now()
		res, err := tr.RoundTrip(request(t, t.Context(), u.URL))
		if err != nil || res.StatusCode != http.StatusTooManyRequests {
			t.Fatal(res, err)
		}
		if text, err := io.ReadAll(res.Body); string(text) != "slow down" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		_, err = get(t, tr, u.URL)
		if time.Since(start) < time.Second { // otherwise the cooldown is over
			if busy := wantBusy(t, err, "cooldown"); busy.After <= 0 || busy.After > time.Second || busy.Spent {
				t.Errorf("%+v", busy)
			}
		}
		other := transport(t, outbound.Config{Base: base(t), Gate: g, MaxWait: time.Minute})
		if status, err := get(t, other, u.URL); status != http.StatusOK || err != nil {
			t.Fatal(status, err)
		}
		if waited := time.Since(start); waited < time.Second {
			t.Errorf("sent after %v", waited)
		}
	})
}
