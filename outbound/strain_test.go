package outbound_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

// shareBucket lets two replicas ask for twice their half of an account, and others for the other
// half. It returns how many requests of the replicas came after the first third, how many of these
// were refused, and for how long the test did not run.
func shareBucket(t *testing.T, own int64) (came, refused int, late time.Duration) {
	const perSecond, burst = 100, 200
	s := redistest.Start(t)
	p := provider.New(provider.Config{
		Form:   provider.OpenAI,
		Limits: []provider.Limit{{Unit: provider.Requests, N: perSecond, Per: time.Second, Burst: burst}},
	})
	u := httptest.NewServer(p)
	defer u.Close()
	lasts := 9 * time.Second
	if gatetest.Long() {
		lasts = time.Minute
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	ask := func(every time.Duration, tr http.RoundTripper, id string) {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		start := time.Now()
		for last := start; time.Since(start) < lasts; {
			<-ticker.C
			mu.Lock()
			late = max(late, time.Since(last)-every)
			mu.Unlock()
			last = time.Now()
			all.Go(func() {
				r := request(t, t.Context(), u.URL)
				r.Header.Set("Authorization", "Bearer key")
				r.Header.Set("X-Request-Id", id)
				if res, err := tr.RoundTrip(r); err == nil {
					_ = res.Body.Close()
				}
			})
		}
	}
	all.Go(func() { ask(2*time.Second/perSecond, base(t), "") })
	for range 2 {
		tr := transport(t, outbound.Config{
			Base: base(t), Gate: gatetest.Redis(t, s.Client(t), core.Config{}), MaxWait: 2 * time.Second,
			Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "requests", core.TokenBucket{Rate: perSecond, Per: time.Second, Burst: own}),
				Key:    outbound.ByCredential,
			}},
		})
		all.Go(func() { ask(time.Second/perSecond, tr, "ours") })
	}
	all.Wait()
	arrivals := p.Arrivals()
	for _, a := range arrivals {
		if a.ID == "" || a.At.Sub(arrivals[0].At) < lasts/3 {
			continue
		}
		if came++; a.Refused {
			refused++
		}
	}
	return came, refused, late
}

// Where others use half of an account that refills evenly, what its responses tell slows the other
// half down before the account refuses it, whether the burst of the rule is that of the account or
// not.
func TestOthersUseHalfOfABucket(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]int64{"small burst": 5, "burst of the account": 200} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range tries {
				came, refused, late := shareBucket(t, own)
				t.Logf("%d of %d were refused; the test did not run for %v", refused, came, late)
				switch {
				case came > 0 && refused*100 <= came:
					return
				case late < 50*time.Millisecond:
					t.Fatalf("%d of %d were refused", refused, came)
				}
			}
			t.Skip("the machine is too busy to tell how many are refused")
		})
	}
}
