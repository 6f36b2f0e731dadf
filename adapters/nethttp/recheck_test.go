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

// Sixty wrong passwords at once under one id are at most five guesses.
func TestQueuedIDsMeetTheBlock(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		t.Cleanup(func() { _ = gate.Close(context.Background()) })
		ban := bans(t, core.Block{Strikes: 5, Within: time.Hour, For: time.Hour})
		g := guard(t, nethttp.Config{Gate: gate, Blocks: []nethttp.BlockRule{{
			Policy: ban, Key: keyfunc.RemoteIP(), Strikes: nethttp.StrikeOn(http.StatusUnauthorized),
		}}})
		var guesses, refused atomic.Int64
		h := replay(t, g, nethttp.ReplayConfig{
			Once: newOnce(t, gate), ID: byID, MaxWait: generous,
			Succeeded: func(_ *http.Request, status int) bool { return status != http.StatusUnauthorized },
		}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			guesses.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
		}))
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() {
				r := get(h, withID("a"))
				if r.StatusCode == http.StatusTooManyRequests && r.Header.Get("Retry-After") != "" {
					refused.Add(1)
				}
			})
		}
		wg.Wait()
		if guesses.Load() != 5 || refused.Load() != 55 {
			t.Errorf("%d guesses, %d refusals of the block", guesses.Load(), refused.Load())
		}
	})
}

// reserving runs f on a Gate. meanwhile sets a func that runs once, after the next reservation and
// before its caller has the answer.
func reserving(
	t *testing.T, open func(core.Config) (*core.Gate, error), f func(t *testing.T, gate *core.Gate, meanwhile func(func())),
) {
	t.Helper()
	var act atomic.Pointer[func()]
	gate := core.Must(open(core.Config{Timeout: generous, Observe: func(_ context.Context, e core.Event) {
		if d, decided := e.(*core.DecisionEvent); decided && d.Op == core.OpReserve {
			if f := act.Swap(nil); f != nil {
				(*f)()
			}
		}
	}}))
	t.Cleanup(func() { _ = gate.Close(context.Background()) })
	f(t, gate, func(f func()) { act.Store(&f) })
}

// eachReserving is reserving on a Gate in memory and on one on every Redis.
func eachReserving(t *testing.T, f func(t *testing.T, gate *core.Gate, meanwhile func(func()))) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { reserving(t, core.NewMemory, f) })
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		reserving(t, func(cfg core.Config) (*core.Gate, error) {
			cfg.Prefix = s.Prefix
			return core.NewRedis(s.Client(t), cfg)
		}, f)
	})
}

// A request that was delayed for MaxDelay is refused at once when the Gate is closed.
func TestCloseEndsDelays(t *testing.T) {
	t.Parallel()
	eachReserving(t, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
		rate := policy(t, core.PolicyConfig{Name: "rate", Algorithm: core.PerHour(1)})
		h := guard(t, nethttp.Config{
			Gate: gate, MaxDelay: 2 * time.Hour, Rules: []nethttp.Rule{{Policy: rate, Key: keyfunc.RemoteIP()}},
		}).Handler(http.HandlerFunc(ok))
		if r := get(h); r.StatusCode != http.StatusOK {
			t.Fatalf("status %d", r.StatusCode)
		}
		closed := make(chan error, 1)
		meanwhile(func() { go func() { closed <- gate.Close(t.Context()) }() })
		if r := get(h); r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("status %d", r.StatusCode)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// A request that has lost its hold while it was delayed, or might have waited for its slot, is
// charged again, or refused if others have spent what it held. Its slot is free then.
func TestDelayedRequestWithLostHold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		spent, status int
		used          int64
	}{
		{"room", 0, http.StatusOK, 1},
		{"no room", 2, http.StatusTooManyRequests, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rate := policy(t, core.PolicyConfig{Name: "rate", Algorithm: core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1}})
			held := policy(t, core.PolicyConfig{Name: "held", Hold: time.Hour, Algorithm: core.TokenBucket{Burst: 2}})
			key := core.Must(core.NewKey("192.0.2.1"))
			charge := core.Charge{Policy: held, Key: key}
			lose := func(t *testing.T, cfg nethttp.Config, meanwhile func(func())) *nethttp.Exchange {
				cfg.MaxDelay = time.Hour
				cfg.Rules = append(cfg.Rules, nethttp.Rule{Policy: held, Key: keyfunc.RemoteIP()})
				g := guard(t, cfg)
				meanwhile(func() {
					if err := cfg.Gate.Reset(t.Context(), charge); err != nil { // as if Redis had lost its data
						t.Error(err)
					}
					for range tt.spent {
						if _, err := cfg.Gate.Decide(t.Context(), charge); err != nil {
							t.Error(err)
						}
					}
				})
				x := g.Admit(httptest.NewRequest(http.MethodGet, "/", nil))
				if status := max(x.Status(), http.StatusOK); status != tt.status {
					t.Errorf("status %d, %v, want %d", status, x.Err(), tt.status)
				}
				if d, err := cfg.Gate.Peek(t.Context(), charge); err != nil || d.At(0).Used != tt.used {
					t.Errorf("%d used, %v, want %d", d.At(0).Used, err, tt.used)
				}
				return x
			}
			t.Run("delayed", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newClock()
					open := func(cfg core.Config) (*core.Gate, error) {
						cfg.Clock = c.Now
						return core.NewMemory(cfg)
					}
					reserving(t, open, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
						if _, err := gate.Decide(t.Context(), core.Charge{Policy: rate, Key: key}); err != nil {
							t.Fatal(err)
						}
						first := nethttp.Rule{Policy: rate, Key: keyfunc.RemoteIP()}
						x := lose(t, nethttp.Config{Gate: gate, Rules: []nethttp.Rule{first}}, func(f func()) {
							meanwhile(func() {
								f()
								c.advance(time.Second)
							})
						})
						x.Finish(httptest.NewRequest(http.MethodGet, "/", nil), x.Status())
					})
				})
			})
			eachReserving(t, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
				streams := newSemaphore(t, gate, semaphore.Config{})
				x := lose(t, nethttp.Config{Gate: gate, Slot: &nethttp.Slot{
					Semaphore: streams, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}}, MaxWait: generous,
				}}, meanwhile)
				holders, _, err := streams.Holders(t.Context(), key)
				if err != nil || (len(holders) > 0) != (tt.status == http.StatusOK) {
					t.Errorf("%d hold a slot, %v", len(holders), err)
				}
				x.Finish(httptest.NewRequest(http.MethodGet, "/", nil), x.Status())
			})
		})
	}
}

// A request that has lost its hold while it waited for its id is refused, and leaves the id free.
func TestReplayWithLostHold(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		t.Cleanup(func() { _ = gate.Close(context.Background()) })
		tokens := policy(t, core.PolicyConfig{Name: "tokens", Hold: time.Hour, Algorithm: core.TokenBucket{Burst: 5}})
		charge := core.Charge{Policy: tokens, Key: core.Must(core.NewKey("192.0.2.1"))}
		g := guard(t, nethttp.Config{Gate: gate, Rules: []nethttp.Rule{{
			Policy: tokens, Key: keyfunc.RemoteIP(), Settle: nethttp.RefundServerErrors,
		}}})
		var reset atomic.Bool
		h := replay(t, g, nethttp.ReplayConfig{Once: newOnce(t, gate), MaxWait: generous, ID: func(r *http.Request) (string, error) {
			if reset.Swap(false) { // after the Guard has admitted the request
				if err := gate.Reset(r.Context(), charge); err != nil {
					t.Error(err)
				}
			}
			return byID(r)
		}}).Handler(http.HandlerFunc(ok))
		reset.Store(true)
		if r := get(h, withID("a")); r.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("status %d", r.StatusCode)
		}
		if d, err := gate.Peek(t.Context(), charge); err != nil || d.At(0).Used != 0 {
			t.Errorf("%d used, %v", d.At(0).Used, err)
		}
		for _, want := range []int{http.StatusOK, http.StatusConflict} {
			if r := get(h, withID("a")); r.StatusCode != want {
				t.Errorf("status %d, want %d", r.StatusCode, want)
			}
		}
	})
}

// A request that waits for a slot keeps its plan, and the newest limit of the cap lets it in.
func TestWaitingRequestGetsTheNewestCap(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		t.Cleanup(func() { _ = gate.Close(context.Background()) })
		var slots atomic.Int64
		slots.Store(1)
		queued := make(chan struct{}, 10)
		g := guard(t, nethttp.Config{
			Gate: gate,
			Plan: func(*http.Request) (core.Plan, error) {
				return plan{caps: map[string][3]int64{"streams": {slots.Load()}}}, nil
			},
			Slot: &nethttp.Slot{
				Semaphore: newSemaphore(t, gate, semaphore.Config{}), MaxWait: generous,
				Caps:    []nethttp.Cap{{Name: "streams", Key: keyfunc.RemoteIP(), Limit: 9}},
				OnQueue: func(*http.Request, int) { queued <- struct{}{} },
			},
		})
		admit := func() *nethttp.Exchange { return g.Admit(httptest.NewRequest(http.MethodGet, "/", nil)) }
		first := admit()
		waiting := make(chan *nethttp.Exchange, 1)
		go func() { waiting <- admit() }()
		<-queued
		slots.Store(3)
		third := admit()
		second := <-waiting
		for i, x := range []*nethttp.Exchange{first, second, third} {
			if limit, _, _ := x.Plan().Cap("streams"); !x.Allowed() || limit != []int64{1, 1, 3}[i] {
				t.Errorf("request %d: status %d, a plan of %d", i, x.Status(), limit)
			}
			x.Finish(httptest.NewRequest(http.MethodGet, "/", nil), http.StatusOK)
		}
	})
}
