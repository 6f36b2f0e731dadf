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

// Where others use half of an account that refills evenly, what its responses tell slows this half
// down before it is refused, whether the burst of the rule is that of the account or not.
func TestOthersUseHalfOfABucket(t *testing.T) {
	const perSecond, burst = 100, 200
	for name, own := range map[string]int64{"small burst": 5, "burst of the account": burst} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			p := provider.New(provider.Config{
				Form:   provider.OpenAI,
				Limits: []provider.Limit{{Unit: provider.Requests, N: perSecond, Per: time.Second, Burst: burst}},
			})
			u := httptest.NewServer(p)
			defer u.Close()
			end := make(chan struct{})
			var all sync.WaitGroup
			defer all.Wait()
			defer close(end)
			ask := func(every time.Duration, tr http.RoundTripper, id string) {
				ticker := time.NewTicker(every)
				defer ticker.Stop()
				for {
					select {
					case <-ticker.C:
					case <-end:
						return
					}
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
				g := gatetest.Redis(t, s.Client(t), core.Config{})
				tr := transport(t, outbound.Config{
					Base: base(t), Gate: g, MaxWait: 2 * time.Second,
					Rules: []outbound.Rule{{
						Policy: gatetest.Limited(t, "requests", core.TokenBucket{Rate: perSecond, Per: time.Second, Burst: own}),
						Key:    outbound.ByCredential,
					}},
				})
				all.Go(func() { ask(time.Second/perSecond, tr, "ours") })
			}
			lasts := 12 * time.Second
			if gatetest.Long() {
				lasts = time.Minute
			}
			time.Sleep(lasts)
			arrivals := p.Arrivals()
			ours, refused := 0, 0
			for _, a := range arrivals {
				if a.ID == "" || a.At.Sub(arrivals[0].At) < lasts/3 {
					continue
				}
				if ours++; a.Refused {
					refused++
				}
			}
			t.Logf("%d of %d were refused", refused, ours)
			if refused*100 > ours || ours == 0 {
				t.Errorf("%d of %d were refused", refused, ours)
			}
		})
	}
}
