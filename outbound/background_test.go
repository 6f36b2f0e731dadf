package outbound_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/outbound"
)

// Requests of background work wait behind all others, for whatever they wait, and reserve nothing until
// half of their time is over.
func TestBackground(t *testing.T) {
	rule := func(a core.Algorithm) func(t *testing.T, g *core.Gate, cfg *outbound.Config) {
		return func(t *testing.T, _ *core.Gate, cfg *outbound.Config) {
			cfg.Rules = []outbound.Rule{{Policy: gatetest.Limited(t, "a", a), Key: outbound.ByHost}}
		}
	}
	bucket := rule(core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1})
	slot := func(t *testing.T, g *core.Gate, cfg *outbound.Config) { cfg.Slot = slotOf(t, g, 1) }
	tests := []struct {
		name      string
		configure []func(t *testing.T, g *core.Gate, cfg *outbound.Config)
		maxWait   time.Duration
		pool      bool
		late      string // a late foreground request comes before these, or after
	}{
		{"token bucket", limits(bucket), time.Hour, false, "before"},
		{"leaky bucket", limits(rule(core.LeakyBucket{Rate: 1, Per: time.Second, Capacity: 100})), time.Hour, false, "before"},
		{"window", limits(rule(core.FixedWindow{Limit: 1, Window: time.Second})), time.Hour, false, "before"},
		{"slot", limits(slot), time.Hour, false, "before"},
		{"slot and bucket", limits(slot, bucket), time.Hour, false, "before"},
		{"pool", limits(bucket), time.Hour, true, "before"},
		{"after half of the time", limits(bucket), 5 * time.Second, false, "after"},
		{"after half of the time of a pool", limits(bucket), 5 * time.Second, true, "after"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := gatetest.Memory(t, core.Config{})
				var mu sync.Mutex
				var order []string
				cfg := outbound.Config{Gate: g, MaxWait: tt.maxWait, Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					mu.Lock()
					order = append(order, r.URL.Path[1:])
					mu.Unlock()
					time.Sleep(time.Second) // the slot is held for a while
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
				})}
				for _, configure := range tt.configure {
					configure(t, g, &cfg)
				}
				var tr http.RoundTripper = transport(t, cfg)
				if tt.pool {
					tr = core.Must(outbound.NewPool(outbound.PoolConfig{MaxWait: tt.maxWait, Upstreams: []outbound.Upstream{
						{Name: "one", Transport: transport(t, cfg)},
					}}))
				}
				var all sync.WaitGroup
				send := func(name string) {
					all.Go(func() {
						ctx := t.Context()
						if strings.HasPrefix(name, "back") {
							ctx = core.WithBackground(ctx)
						}
						res, err := tr.RoundTrip(request(t, ctx, "http://upstream/"+name))
						if err != nil {
							t.Errorf("%s: %v", name, err)
							return
						}
						_ = res.Body.Close()
					})
					synctest.Wait()
				}
				for _, name := range []string{"first", "back1", "back2", "back3", "front"} {
					send(name)
				}
				time.Sleep(2700 * time.Millisecond) // one of the background has passed
				send("late")
				all.Wait()
				want := []string{"first", "front", "back1", "late", "back2", "back3"}
				if tt.late == "after" {
					want = []string{"first", "front", "back1", "back2", "back3", "late"}
					slices.Sort(order[3:5]) // their half is over at the same time
				}
				if !slices.Equal(order, want) {
					t.Errorf("%v, want %v", order, want)
				}
			})
		})
	}
}

func limits(all ...func(*testing.T, *core.Gate, *outbound.Config)) []func(*testing.T, *core.Gate, *outbound.Config) {
	return all
}
