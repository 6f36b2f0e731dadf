package outbound_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// Whenever callers give up, and however responses end, no slot, no reserved unit and no goroutine
// is left afterwards.
func TestStormLeavesNothing(t *testing.T) {
	s := redistest.Start(t)
	requests := 2_000
	if gatetest.Long() {
		requests = 10_000
	}
	const running, limit = 200, 20
	client, admin := s.Client(t), s.Client(t)
	admin.Ping(t.Context())
	a := new(answers)
	b := &http.Transport{MaxIdleConnsPerHost: running}
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		a.ServeHTTP(w, nil)
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) // streams end in any order
		_, _ = io.WriteString(w, "second")
	})
	b.CloseIdleConnections()
	before := goleak.IgnoreCurrent()
	g, err := core.NewRedis(client, core.Config{Timeout: gatetest.LongTimeout})
	if err != nil {
		t.Fatal(err)
	}
	slot := &outbound.Slot{
		Semaphore: newSemaphore(t, g, semaphore.Config{MaxWaiters: 10_000}),
		Caps:      []outbound.Cap{{Key: outbound.ByCredential, Limit: limit}},
	}
	held := gatetest.Policy(t, core.PolicyConfig{Name: "tokens", Algorithm: gatetest.Frozen(1 << 40), Hold: time.Minute, Unit: core.UnitTokens})
	tr := transport(t, outbound.Config{
		Base: b, Gate: g, Slot: slot, Meter: byPath{}, MaxWait: time.Minute,
		Retry: outbound.Retry{Max: 1}, Backoff: outbound.Backoff{First: time.Millisecond, Most: 5 * time.Millisecond},
		Rules: []outbound.Rule{
			{Policy: held, Key: outbound.ByHost},
			{Policy: gatetest.Limited(t, "rate", core.TokenBucket{Rate: 2000, Per: time.Second, Burst: 10}), Key: outbound.ByModel},
			{Policy: gatetest.Limited(t, "window", core.SlidingWindow{Limit: 200, Window: 100 * time.Millisecond, Buckets: 10}), Key: outbound.ByCredential},
		},
	})
	var sent atomic.Int64
	places := make(chan struct{}, running)
	var wg sync.WaitGroup
	for i := range requests {
		places <- struct{}{}
		if i%100 == 0 {
			a.push(refuse(429, "{}"))
		}
		wg.Go(func() {
			defer func() { <-places }()
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if rand.IntN(3) > 0 { // gives up at some time
				timer := time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, cancel)
				defer timer.Stop()
			}
			res, err := tr.RoundTrip(request(t, ctx, u.URL+"/m"))
			if err != nil {
				// A process that starves loses its leases.
				if ctx.Err() == nil && !errors.Is(err, outbound.ErrBusy) && !errors.Is(err, semaphore.ErrLeaseLost) {
					t.Error(err)
				}
				return
			}
			sent.Add(1)
			switch rand.IntN(3) {
			case 0:
				_, _ = io.Copy(io.Discard, res.Body)
			case 1:
				_ = res.Body.Close()
			case 2: // nobody reads, and the context ends
			}
		})
	}
	wg.Wait()
	start := time.Now()
	t.Logf("%d of %d requests were answered", sent.Load(), requests)
	if sent.Load() == 0 {
		t.Error("nothing was answered")
	}
	key, _ := outbound.ByHost(request(t, t.Context(), u.URL))
	gatetest.Eventually(t, "nothing is held", func() bool {
		d, err := g.Peek(t.Context(), core.Charge{Policy: held, Key: key, Cost: core.NoCost})
		return err == nil && d.At(0).Held == 0 && holders(t, slot, u.URL) == 0 && tr.Waiting() == 0
	})
	if took := time.Since(start); took > time.Second+slack() {
		t.Errorf("nothing was held after %v", took)
	}
	b.CloseIdleConnections()
	u.Close()
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
