package outbound_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/provider"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

const bucketPerSecond = 100

func newBucket() *provider.Provider {
	return provider.New(provider.Config{
		Form:   provider.OpenAI,
		Limits: []provider.Limit{{Unit: provider.Requests, N: bucketPerSecond, Per: time.Second, Burst: 200}},
	})
}

// shareBucket lets replicas with a Gate each ask for twice their half of an account, and others for
// the other half. It returns for how long the test did not run.
func shareBucket(t *testing.T, own int64, lasts time.Duration, rt http.RoundTripper, url string, gates ...*core.Gate) (late time.Duration) {
	end := others(t, 2*time.Second/bucketPerSecond, rt, url)
	defer end()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, g := range gates {
		tr := transport(t, outbound.Config{
			Base: rt, Gate: g, MaxWait: 2 * time.Second,
			Rules: []outbound.Rule{{
				Policy: gatetest.Limited(t, "requests", core.TokenBucket{Rate: bucketPerSecond, Per: time.Second, Burst: own}),
				Key:    outbound.ByCredential,
			}},
		})
		all.Go(func() {
			const every = time.Second / bucketPerSecond
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
					r := request(t, t.Context(), url)
					r.Header.Set("Authorization", "Bearer key")
					r.Header.Set("X-Request-Id", "ours")
					r.Header.Set("X-Model", "m")
					if res, err := tr.RoundTrip(r); err == nil {
						_ = res.Body.Close()
					}
				})
			}
		})
	}
	all.Wait()
	return late
}

// Where others use half of an account that refills evenly, what its responses tell slows the other
// half down before the account refuses it, whether the burst of the rule is that of the account or
// not.
func TestOthersUseHalfOfABucket(t *testing.T) {
	for name, own := range map[string]int64{"small burst": 5, "burst of the account": 200} {
		t.Run(name, func(t *testing.T) {
			t.Run("memory", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p, g := newBucket(), gatetest.Memory(t, core.Config{})
					shareBucket(t, own, 9*time.Second, answering(p), "http://example.com", g, g)
					if fault := fewAreRefused(t, p, 3*time.Second); fault != "" {
						t.Error(fault)
					}
				})
			})
			t.Run("redis", func(t *testing.T) {
				if !gatetest.Long() {
					t.Skip("it takes a minute")
				}
				untilCalm(t, func(int) (time.Duration, string) {
					s, p := redistest.Start(t), newBucket()
					u := httptest.NewServer(p)
					defer u.Close()
					late := shareBucket(t, own, time.Minute, base(t), u.URL,
						gatetest.Redis(t, s.Client(t), core.Config{}), gatetest.Redis(t, s.Client(t), core.Config{}))
					return late, fewAreRefused(t, p, 20*time.Second)
				})
			})
		})
	}
}
