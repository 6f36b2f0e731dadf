package outbound_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// A turn that comes during a cooldown stays empty, because others have the turns behind it: the
// upstream never sees more in a second than the rule says.
func TestTurnsOfACooldownStayEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, callers = 4, 60
		var mu sync.Mutex
		var times []time.Time
		upstream := roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			times = append(times, time.Now())
			res := &http.Response{StatusCode: http.StatusOK, Header: make(http.Header), Body: http.NoBody, Request: r}
			if len(times) == 8 {
				res.StatusCode = http.StatusTooManyRequests
				res.Header.Set("Retry-After", "6")
			}
			return res, nil
		})
		p := gatetest.Limited(t, "upstream", core.TokenBucket{Rate: rate, Per: time.Second, Burst: 1})
		tr := transport(t, outbound.Config{
			Base: upstream, Gate: gatetest.Memory(t, core.Config{}), MaxWait: time.Minute,
			Rules: []outbound.Rule{{Policy: p, Key: outbound.ByHost}}, Retry: outbound.Retry{Max: 1},
		})
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if _, err := get(t, tr, "http://upstream.example"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		gatetest.Equal(t, len(times), callers+1, "requests were sent, want one again and")
		for i := rate + 1; i < len(times); i++ {
			if times[i].Sub(times[i-rate-1]) < time.Second {
				t.Errorf("%d requests in less than a second, at %v", rate+2, times[i])
			}
		}
	})
}
