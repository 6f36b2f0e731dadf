package nethttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/keyfunc"
)

// queuedLogin is a Guard that blocks a name after five failures and lets one login of it run at a
// time.
func queuedLogin(t *testing.T, gate *core.Gate) (g *nethttp.Guard, ban *core.Policy) {
	t.Helper()
	name := keyfunc.Must(keyfunc.Header("X-User"))
	ban = bans(t, core.Block{Strikes: 5, Within: time.Hour, For: time.Hour})
	return guard(t, nethttp.Config{
		Gate:   gate,
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: name, Strikes: nethttp.StrikeOn(http.StatusUnauthorized)}},
		Slot: &nethttp.Slot{
			Semaphore: newSemaphore(t, gate, semaphore.Config{}),
			Caps:      []nethttp.Cap{{Key: name, Limit: 1}}, MaxWait: generous,
		},
	}), ban
}

// Sixty wrong passwords at once for one name are at most five guesses.
func TestQueuedGuessesMeetTheBlock(t *testing.T) {
	t.Parallel()
	runs := 10
	if os.Getenv("HEADGATE_TEST_LONG") != "" {
		runs = 100
	}
	storm := func(t *testing.T, gate *core.Gate) {
		t.Cleanup(func() { _ = gate.Close(context.Background()) })
		var guesses atomic.Int64
		g, _ := queuedLogin(t, gate)
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			guesses.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		for run := range runs {
			guesses.Store(0)
			var refused atomic.Int64
			var wg sync.WaitGroup
			for range 60 {
				wg.Go(func() {
					r := get(h, as("", "user"+strconv.Itoa(run)))
					if r.StatusCode == http.StatusTooManyRequests && r.Header.Get("Retry-After") != "" {
						refused.Add(1)
					}
				})
			}
			wg.Wait()
			if n := guesses.Load(); n != 5 || refused.Load() != 55 {
				t.Errorf("run %d: %d guesses, %d refusals of the block", run, n, refused.Load())
			}
		}
	}
	t.Run("memory", func(t *testing.T) { storm(t, core.Must(core.NewMemory(core.Config{}))) })
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t)
		storm(t, core.Must(core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: generous})))
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3)
		storm(t, core.Must(core.NewRedis(c.Client(t), core.Config{Timeout: generous})))
	})
}

// A request that was delayed for MaxDelay is refused if its client was blocked meanwhile, and has
// spent nothing.
func TestDelayedRequestMeetsTheBlock(t *testing.T) {
	for _, capped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := core.Must(core.NewMemory(core.Config{}))
			defer func() { _ = gate.Close(t.Context()) }()
			ban := bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})
			rate := policy(t, core.PolicyConfig{Name: "rate", Algorithm: core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 1}})
			cfg := nethttp.Config{
				Gate: gate, MaxDelay: time.Hour,
				Blocks: []nethttp.BlockRule{{Policy: ban, Key: keyfunc.RemoteIP()}},
				Rules:  []nethttp.Rule{{Policy: rate, Key: keyfunc.RemoteIP()}},
			}
			if capped {
				cfg.Slot = &nethttp.Slot{
					Semaphore: newSemaphore(t, gate, semaphore.Config{}),
					Caps:      []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
				}
			}
			h := guard(t, cfg).Handler(http.HandlerFunc(ok))
			if r := get(h); r.StatusCode != http.StatusOK {
				t.Errorf("capped %v: the first has status %d", capped, r.StatusCode)
			}
			answer := make(chan *http.Response, 1)
			go func() { answer <- get(h) }()
			synctest.Wait()
			key := core.Must(core.NewKey("192.0.2.1"))
			if err := core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), key, time.Hour); err != nil {
				t.Fatal(err)
			}
			r := <-answer
			if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
				t.Errorf("capped %v: status %d, %v", capped, r.StatusCode, r.Header)
			}
			d, err := gate.Peek(t.Context(), core.Charge{Policy: rate, Key: key})
			if err != nil || d.At(0).Used != 0 {
				t.Errorf("capped %v: %d used, %v", capped, d.At(0).Used, err)
			}
		})
	}
}

// A request that finds a free slot does not ask about its block again.
func TestFreeSlotTakesNoRecheck(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := core.Must(core.NewRedis(s.Client(t), core.Config{Prefix: s.Prefix, Timeout: generous}))
	t.Cleanup(func() { _ = gate.Close(context.Background()) })
	g, _ := queuedLogin(t, gate)
	request := func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.Header.Set("X-User", "u")
		return r
	}
	admit := func() *nethttp.Exchange {
		x := g.Admit(request())
		if !x.Allowed() {
			t.Fatal(x.Status())
		}
		return x
	}
	admit().Finish(request(), http.StatusOK) // loads the scripts
	before := s.Calls(t, "evalsha", "eval")
	x := admit()
	if n := s.Calls(t, "evalsha", "eval") - before; n != 1 {
		t.Errorf("%d scripts for the block and a free slot, want 1", n)
	}
	x.Finish(request(), http.StatusOK)
}

// A client is blocked, and the holder of its slot finishes, between the decision on a request and
// its question for a slot. The request finds the slot free, and is refused.
func TestSlotFreedAfterTheDecision(t *testing.T) {
	t.Parallel()
	between := func(t *testing.T, open func(core.Config) (*core.Gate, error)) {
		var act atomic.Pointer[func()]
		gate := core.Must(open(core.Config{Timeout: generous, Observe: func(_ context.Context, e core.Event) {
			if _, decided := e.(*core.DecisionEvent); decided {
				if f := act.Swap(nil); f != nil {
					(*f)()
				}
			}
		}}))
		t.Cleanup(func() { _ = gate.Close(context.Background()) })
		g, ban := queuedLogin(t, gate)
		request := httptest.NewRequest(http.MethodPost, "/login", nil)
		request.Header.Set("X-User", "u")
		holder := g.Admit(request)
		charges, err := g.Charges(request)
		if err != nil || !holder.Allowed() {
			t.Fatal(err, holder.Status())
		}
		finish := func() {
			if err := core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), charges[0].Key, time.Hour); err != nil {
				t.Error(err)
			}
			holder.Finish(request, http.StatusOK)
		}
		act.Store(&finish)
		x := g.Admit(request)
		if wait, ok := x.RetryAfter(); x.Status() != http.StatusTooManyRequests || !ok || wait <= time.Minute {
			t.Errorf("status %d, RetryAfter %v", x.Status(), wait)
		}
		x.Finish(request, x.Status())
	}
	t.Run("memory", func(t *testing.T) { between(t, core.NewMemory) })
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t)
		between(t, func(cfg core.Config) (*core.Gate, error) {
			cfg.Prefix = s.Prefix
			return core.NewRedis(s.Client(t), cfg)
		})
	})
}
