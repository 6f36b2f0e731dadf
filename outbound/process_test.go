package outbound_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/outbound"
)

const (
	replicaCap = 20
	replicaTTL = 3 * time.Second // a process that starves for that long loses its slots
)

// TestReplica is a process that holds all slots at an upstream until it is killed.
func TestReplica(t *testing.T) {
	addr, url := os.Getenv("OUTBOUND_TEST_ADDR"), os.Getenv("OUTBOUND_TEST_URL")
	if addr == "" {
		t.Skip("runs only as a process of another test")
	}
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	tr := transport(t, replicaConfig(t, gatetest.Redis(t, client, core.Config{})))
	for range replicaCap {
		roundTrip(t, tr, request(t, t.Context(), url))
	}
	fmt.Println("begun")
	select {}
}

func replicaConfig(t *testing.T, g *core.Gate) outbound.Config {
	return outbound.Config{
		Base: base(t), Gate: g, Meter: byPath{}, MaxWait: time.Minute,
		Slot: &outbound.Slot{
			Semaphore: newSemaphore(t, g, semaphore.Config{TTL: replicaTTL, MaxWaiters: 1000}),
			Caps:      []outbound.Cap{{Key: outbound.ByCredential, Limit: replicaCap}},
		},
		Rules: []outbound.Rule{{
			Policy: gatetest.Policy(t, core.PolicyConfig{Name: "requests", Algorithm: core.PerSecond(1000), Hold: time.Second}),
			Key:    outbound.ByModel,
		}},
	}
}

// slack is what a test adds to a bound on a machine that is busy with other tests, where a time says
// nothing. The long forms run alone.
func slack() time.Duration {
	if gatetest.Long() {
		return 0
	}
	return gatetest.LongTimeout
}

// The slots and the reserved units of a process that is killed come back within the TTL.
func TestKilledProcessGivesItsSlotsBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	u := stream(t, nil)
	_, lines, kill := redistest.StartKillable(t, "TestReplica", "OUTBOUND_TEST_ADDR="+s.Addr, "OUTBOUND_TEST_URL="+u.URL+"/m")
	for lines.Scan() && lines.Text() != "begun" {
	}
	g := gatetest.Redis(t, s.Client(t), core.Config{})
	cfg := replicaConfig(t, g)
	gatetest.Need(t, holders(t, cfg.Slot, u.URL), replicaCap, "slots are held")
	cfg.MaxWait = 0
	_, err := transport(t, cfg).RoundTrip(request(t, t.Context(), u.URL+"/m"))
	wantBusy(t, err, "streams")
	kill()
	start := time.Now()
	cfg.MaxWait = time.Minute
	tr := transport(t, cfg)
	for range replicaCap {
		res := roundTrip(t, tr, request(t, t.Context(), u.URL+"/m"))
		defer func() { _ = res.Body.Close() }()
	}
	if took := time.Since(start); took > replicaTTL+500*time.Millisecond+slack() {
		t.Errorf("the slots were back after %v", took)
	}
}

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
	g := core.Must(core.NewRedis(client, core.Config{Timeout: gatetest.LongTimeout}))
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
	gatetest.Worked(t, g.Close(t.Context()))
	gatetest.Worked(t, goleak.Find(before))
}
