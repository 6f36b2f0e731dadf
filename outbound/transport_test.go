package outbound_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

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
