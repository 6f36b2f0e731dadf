package nethttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
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
			Caps:      []nethttp.Cap{{Key: name, Limit: 1}}, MaxWait: aQueue,
		},
	}), ban
}

// storm sends sixty wrong passwords at once. Five are guesses, and the block refuses the rest.
func storm(t *testing.T, g nethttp.Admitter, client func(*http.Request)) {
	t.Helper()
	var guesses atomic.Int64
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		guesses.Add(1)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	var mu sync.Mutex
	answers := make(map[string]int)
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			r := get(h, client)
			mu.Lock()
			defer mu.Unlock()
			answers[fmt.Sprintf("%d, with a wait %v", r.StatusCode, r.Header.Get("Retry-After") != "")]++
		})
	}
	wg.Wait()
	if n := guesses.Load(); n != 5 || answers["429, with a wait true"] != 55 {
		t.Errorf("%d guesses, %v", n, answers)
	}
}

func TestQueuedGuessesMeetTheBlock(t *testing.T) {
	t.Parallel()
	runs := 10
	if gatetest.Long() {
		runs = 100
	}
	storms := func(t *testing.T, gate *core.Gate) {
		g, _ := queuedLogin(t, gate)
		for run := range runs {
			storm(t, g, as("", "user"+strconv.Itoa(run)))
		}
	}
	t.Run("memory", func(t *testing.T) { storms(t, gatetest.Memory(t, core.Config{})) })
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t)
		storms(t, gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix}))
	})
	t.Run("cluster", func(t *testing.T) {
		storms(t, gatetest.Redis(t, redistest.StartCluster(t, 3).Client(t), core.Config{}))
	})
}

// A request that was delayed for MaxDelay is refused if its client was blocked meanwhile, and has
// spent nothing.
func TestDelayedRequestMeetsTheBlock(t *testing.T) {
	for _, capped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			gate := gatetest.Memory(t, core.Config{})
			ban := bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})
			cfg := nethttp.Config{
				Gate: gate, MaxDelay: time.Hour,
				Blocks: []nethttp.BlockRule{{Policy: ban, Key: keyfunc.RemoteIP()}},
				Rules:  rules(t, core.PolicyConfig{Name: "rate", Algorithm: core.TokenBucket{Rate: 1, Per: time.Minute, Burst: 1}}),
			}
			if capped {
				cfg.Slot = &nethttp.Slot{
					Semaphore: newSemaphore(t, gate, semaphore.Config{}),
					Caps:      []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
				}
			}
			h := served(t, cfg)
			answers(t, get(h), http.StatusOK)
			answer := make(chan *http.Response, 1)
			go func() { answer <- get(h) }()
			synctest.Wait()
			block(t, gate, ban, "192.0.2.1")
			r := <-answer
			if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
				t.Errorf("capped %v: status %d, %v", capped, r.StatusCode, r.Header)
			}
			d := gatetest.Peek(t, gate, core.Charge{Policy: cfg.Rules[0].Policy, Key: core.Must(core.NewKey("192.0.2.1"))})
			gatetest.Equal(t, d.At(0).Used, 0, "capped %v: used", capped)
		})
	}
}

// A request that finds a free slot does not ask about its block again.
func TestFreeSlotTakesNoRecheck(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g, _ := queuedLogin(t, gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix}))
	admit := func() *nethttp.Exchange {
		x := g.Admit(forged(as("", "u")))
		if !x.Allowed() {
			t.Fatal(x.Status())
		}
		return x
	}
	admit().Finish(forged(), http.StatusOK) // loads the scripts
	before := s.Calls(t, "evalsha", "eval")
	x := admit()
	gatetest.Equal(t, s.Calls(t, "evalsha", "eval")-before, 1, "scripts for the block and a free slot")
	x.Finish(forged(), http.StatusOK)
}

// A client is blocked, and the holder of its slot finishes, between the decision on a request and
// its question for a slot. The request finds the slot free, and is refused.
func TestSlotFreedAfterTheDecision(t *testing.T) {
	t.Parallel()
	eachBetween(t, core.OpDecide, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
		g, ban := queuedLogin(t, gate)
		request := forged(as("", "u"))
		holder := g.Admit(request)
		charges, err := g.Charges(request)
		if err != nil || !holder.Allowed() {
			t.Fatal(err, holder.Status())
		}
		meanwhile(func() {
			gatetest.Worked(t, core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), charges[0].Key, time.Hour))
			holder.Finish(request, http.StatusOK)
		})
		x := g.Admit(request)
		if wait, ok := x.RetryAfter(); x.Status() != http.StatusTooManyRequests || !ok || wait <= time.Minute {
			t.Errorf("status %d, RetryAfter %v", x.Status(), wait)
		}
		x.Finish(request, x.Status())
	})
}

// between runs f on a Gate. meanwhile sets a func that runs once, after the next decision by op and
// before its caller has the answer.
func between(
	t *testing.T, op core.Op, open func(core.Config) *core.Gate, f func(t *testing.T, gate *core.Gate, meanwhile func(func())),
) {
	t.Helper()
	var act atomic.Pointer[func()]
	gate := open(core.Config{Observe: func(_ context.Context, e core.Event) {
		if d, decided := e.(*core.DecisionEvent); decided && d.Op == op {
			if f := act.Swap(nil); f != nil {
				(*f)()
			}
		}
	}})
	f(t, gate, func(f func()) { act.Store(&f) })
}

// eachBetween is between on a Gate in memory and on one on every Redis.
func eachBetween(t *testing.T, op core.Op, f func(t *testing.T, gate *core.Gate, meanwhile func(func()))) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		between(t, op, func(cfg core.Config) *core.Gate { return gatetest.Memory(t, cfg) }, f)
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		between(t, op, func(cfg core.Config) *core.Gate {
			cfg.Prefix = s.Prefix
			return gatetest.Redis(t, s.Client(t), cfg)
		}, f)
	})
}

// The same holds for requests that wait for their id.
func TestQueuedIDsMeetTheBlock(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		ban := bans(t, core.Block{Strikes: 5, Within: time.Hour, For: time.Hour})
		g := guard(t, nethttp.Config{Gate: gate, Blocks: []nethttp.BlockRule{{
			Policy: ban, Key: keyfunc.RemoteIP(), Strikes: nethttp.StrikeOn(http.StatusUnauthorized),
		}}})
		storm(t, replay(t, g, nethttp.ReplayConfig{
			Once: newOnce(t, gate), ID: byID, MaxWait: aQueue,
			Succeeded: func(_ *http.Request, status int) bool { return status != http.StatusUnauthorized },
		}), withID("a"))
	})
}

// A request that was delayed for MaxDelay is refused at once when the Gate is closed.
func TestCloseEndsDelays(t *testing.T) {
	t.Parallel()
	eachBetween(t, core.OpReserve, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
		h := served(t, nethttp.Config{
			Gate: gate, MaxDelay: 2 * time.Hour, Rules: rules(t, core.PolicyConfig{Name: "rate", Algorithm: core.PerHour(1)}),
		})
		answers(t, get(h), http.StatusOK)
		closed := make(chan error, 1)
		meanwhile(func() { go func() { closed <- gate.Close(t.Context()) }() })
		answers(t, get(h), http.StatusServiceUnavailable)
		gatetest.Worked(t, <-closed)
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
			rate := rules(t, core.PolicyConfig{Name: "rate", Algorithm: core.TokenBucket{Rate: 20, Per: time.Second, Burst: 1}})
			held := rules(t, core.PolicyConfig{Name: "held", Hold: time.Hour, Algorithm: core.TokenBucket{Burst: 2}})
			key := core.Must(core.NewKey("192.0.2.1"))
			charge := core.Charge{Policy: held[0].Policy, Key: key}
			lose := func(t *testing.T, cfg nethttp.Config, meanwhile func(func())) *nethttp.Exchange {
				cfg.MaxDelay = time.Hour
				cfg.Rules = slices.Concat(cfg.Rules, held)
				g := guard(t, cfg)
				meanwhile(func() {
					gatetest.Worked(t, cfg.Gate.Reset(t.Context(), charge)) // as if Redis had lost its data
					for range tt.spent {
						gatetest.Worked(t, gatetest.Err(cfg.Gate.Decide(t.Context(), charge)))
					}
				})
				x := g.Admit(forged())
				gatetest.Equal(t, max(x.Status(), http.StatusOK), tt.status, "status, with error %v", x.Err())
				gatetest.Equal(t, used(t, cfg.Gate, charge), tt.used, "used")
				return x
			}
			t.Run("delayed", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newClock()
					open := func(cfg core.Config) *core.Gate {
						cfg.Clock = c.Now
						return gatetest.Memory(t, cfg)
					}
					between(t, core.OpReserve, open, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
						gatetest.Decide(t, gate, core.Charge{Policy: rate[0].Policy, Key: key})
						x := lose(t, nethttp.Config{Gate: gate, Rules: rate}, func(f func()) {
							meanwhile(func() {
								f()
								c.advance(time.Second)
							})
						})
						x.Finish(forged(), x.Status())
					})
				})
			})
			eachBetween(t, core.OpReserve, func(t *testing.T, gate *core.Gate, meanwhile func(func())) {
				streams := newSemaphore(t, gate, semaphore.Config{})
				x := lose(t, nethttp.Config{Gate: gate, Slot: &nethttp.Slot{
					Semaphore: streams, Caps: []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}}, MaxWait: generous,
				}}, meanwhile)
				holders, _, err := streams.Holders(t.Context(), key)
				if err != nil || (len(holders) > 0) != (tt.status == http.StatusOK) {
					t.Errorf("%d hold a slot, %v", len(holders), err)
				}
				x.Finish(forged(), x.Status())
			})
		})
	}
}

// A request that has lost its hold while it waited for its id is refused, and leaves the id free.
func TestReplayWithLostHold(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		tokens := rules(t, core.PolicyConfig{Name: "tokens", Hold: time.Hour, Algorithm: core.TokenBucket{Burst: 5}})
		tokens[0].Settle = nethttp.RefundServerErrors
		charge := core.Charge{Policy: tokens[0].Policy, Key: core.Must(core.NewKey("192.0.2.1"))}
		g := guard(t, nethttp.Config{Gate: gate, Rules: tokens})
		var reset atomic.Bool
		h := replay(t, g, nethttp.ReplayConfig{Once: newOnce(t, gate), MaxWait: generous, ID: func(r *http.Request) (string, error) {
			if reset.Swap(false) { // after the Guard has admitted the request
				gatetest.Worked(t, gate.Reset(r.Context(), charge))
			}
			return byID(r)
		}}).Handler(http.HandlerFunc(ok))
		reset.Store(true)
		answers(t, get(h, withID("a")), http.StatusServiceUnavailable)
		gatetest.Equal(t, used(t, gate, charge), 0, "used")
		answers(t, get(h, withID("a")), http.StatusOK)
		answers(t, get(h, withID("a")), http.StatusOK) // repeated
	})
}

// A request that waits for a slot keeps its plan, and the newest limit of the cap lets it in.
func TestWaitingRequestGetsTheNewestCap(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
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
		first := g.Admit(forged())
		waiting := make(chan *nethttp.Exchange, 1)
		go func() { waiting <- g.Admit(forged()) }()
		<-queued
		slots.Store(3)
		third := g.Admit(forged())
		second := <-waiting
		for i, x := range []*nethttp.Exchange{first, second, third} {
			if limit, _, _ := x.Plan().Cap("streams"); !x.Allowed() || limit != []int64{1, 1, 3}[i] {
				t.Errorf("request %d: status %d, a plan of %d", i, x.Status(), limit)
			}
			x.Finish(forged(), http.StatusOK)
		}
	})
}

// aQueue is longer than a queue of sixty takes on any machine. The last of them waits for all others.
const aQueue = time.Hour

// A request keeps what it holds as long as its handler runs, and spends it for good afterwards,
// with a slot and without one.
func TestRequestKeepsItsHold(t *testing.T) {
	for name, capped := range map[string]bool{"without a slot": false, "with a slot": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := gatetest.Memory(t, core.Config{})
				all := rules(t, core.PolicyConfig{Name: "budget", Algorithm: core.TokenBucket{Burst: 10}, Hold: time.Second})
				all[0].Cost = func(*http.Request) int64 { return 4 }
				cfg := nethttp.Config{Gate: gate, Rules: all}
				if capped {
					cfg.Slot = &nethttp.Slot{
						Semaphore: newSemaphore(t, gate, semaphore.Config{}),
						Caps:      []nethttp.Cap{{Key: keyfunc.RemoteIP(), Limit: 1}},
					}
				}
				charge := core.Charge{Policy: all[0].Policy, Key: core.Must(core.NewKey("192.0.2.1"))}
				r := get(guard(t, cfg).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					time.Sleep(time.Hour)
					gatetest.Equal(t, used(t, gate, charge), 4, "units are in use while the handler runs")
				})))
				time.Sleep(time.Hour)
				if n := used(t, gate, charge); n != 4 || r.StatusCode != http.StatusOK {
					t.Errorf("%d units are in use afterwards, status %d", n, r.StatusCode)
				}
			})
		})
	}
}

// A request that is refused after it was charged, because its id was handled, holds nothing.
func TestRefusedRequestHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := gatetest.Memory(t, core.Config{})
		all := rules(t,
			core.PolicyConfig{Name: "budget", Algorithm: core.TokenBucket{Burst: 100}, Hold: time.Second},
			core.PolicyConfig{Name: "requests", Algorithm: core.TokenBucket{Burst: 100}})
		all[0].Cost = func(*http.Request) int64 { return 10 }
		h := replay(t, guard(t, nethttp.Config{Gate: gate, Rules: all}), nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID}).
			Handler(http.HandlerFunc(ok))
		for range 5 {
			get(h, withID("id"))
		}
		time.Sleep(time.Hour)
		for i, want := range []int64{10, 5} {
			charge := core.Charge{Policy: all[i].Policy, Key: gatetest.Key(t, "192.0.2.1")}
			gatetest.Equal(t, used(t, gate, charge), want, "%s: units in use", all[i].Policy.Name())
		}
	})
}

// A request that is refused after it was charged keeps what it has spent, and of a clamped cost no more
// than that.
func TestRefusedRequestKeepsAClampedCost(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, gate *core.Gate) {
		all := rules(t,
			core.PolicyConfig{Name: "bucket", Algorithm: core.TokenBucket{Burst: 100}},
			core.PolicyConfig{Name: "log", Algorithm: core.SlidingLog{Windows: []core.Window{
				{Limit: 100, Width: time.Hour}, {Limit: 120, Width: 2 * time.Hour}}}})
		for i := range all {
			all[i].Cost, all[i].Clamp = func(*http.Request) int64 { return 1000 }, true
			all[i].Settle = func(*http.Request, int, int64) int64 { return 0 }
		}
		h := replay(t, guard(t, nethttp.Config{Gate: gate, Rules: all}), nethttp.ReplayConfig{Once: newOnce(t, gate), ID: byID}).
			Handler(http.HandlerFunc(ok))
		for _, want := range []int64{0, 100} { // the second answer is repeated
			answers(t, get(h, withID("id")), http.StatusOK)
			for _, rule := range all {
				charge := core.Charge{Policy: rule.Policy, Key: gatetest.Key(t, "192.0.2.1")}
				gatetest.Equal(t, used(t, gate, charge), want, "%s: units in use", rule.Policy.Name())
			}
		}
	})
}

// used returns what is in use under a charge.
func used(t *testing.T, gate *core.Gate, c core.Charge) int64 {
	t.Helper()
	c.Cost = core.NoCost
	d := gatetest.Peek(t, gate, c)
	return d.At(0).Used
}

// A request that a rule denies is decided once more, and only the last decision is told.
func TestReconsider(t *testing.T) {
	for name, c := range map[string]struct {
		again   func(r *http.Request)
		status  int
		decided string // as observed
	}{
		"it costs less":       {func(r *http.Request) { r.Header.Set("X-Cost", "1") }, 200, "[[] 200 reconsidered 1]"},
		"it costs as much":    {func(*http.Request) {}, 429, "[[p] 429 reconsidered 1]"},
		"it is another key's": {func(r *http.Request) { r.Header.Set("X-User", "bob") }, 200, "[[] 200 reconsidered 1]"},
		"nobody reconsiders":  {nil, 429, "[[p] 429 reconsidered 1]"},
	} {
		t.Run(name, func(t *testing.T) {
			asked, seen := 0, []string{}
			p := policy(t, core.PolicyConfig{Name: "p", Algorithm: core.TokenBucket{Burst: 5}})
			g := guard(t, nethttp.Config{
				Gate: memory(t, newClock()),
				Rules: []nethttp.Rule{{
					Policy: p, Key: keyfunc.Must(keyfunc.Header("X-User")),
					Cost: func(r *http.Request) int64 {
						if r.Header.Get("X-Cost") != "" {
							return 1
						}
						return 3
					},
				}},
				Reconsider: func(r *http.Request, denied *nethttp.Admission) bool {
					asked++
					gatetest.Equal(t, fmt.Sprint(denied.Violated()), "[p]", "denied by")
					if c.again != nil {
						c.again(r)
					}
					return c.again != nil
				},
				Observe: observed(func(a *nethttp.Admission) {
					status := a.Status()
					if a.Allowed() {
						status = 200
					}
					seen = append(seen, fmt.Sprint(a.Violated(), status, " reconsidered ", asked))
				}),
			})
			h := g.Handler(http.HandlerFunc(ok))
			as := func(r *http.Request) { r.Header.Set("X-User", "ann") }
			answers(t, get(h, as), 200)
			gatetest.Equal(t, asked, 0, "an admitted request was reconsidered")
			seen = nil
			answers(t, get(h, as), c.status)
			gatetest.Equal(t, fmt.Sprint(seen), c.decided, "observed")
		})
	}
}

// What blocks, caps, Deny and a missing key refuse is not reconsidered.
func TestReconsiderIsForRules(t *testing.T) {
	gate := memory(t, newClock())
	streams := core.Must(semaphore.New(gate, semaphore.Config{Name: "streams"}))
	ban := bans(t, core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})
	by := keyfunc.Must(keyfunc.Header("X-User"))
	g := guard(t, nethttp.Config{
		Gate:   gate,
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: by, Trap: func(r *http.Request) bool { return r.URL.Path == "/trap" }}},
		Rules:  []nethttp.Rule{{Policy: policy(t, core.PolicyConfig{Name: "p", Algorithm: core.PerMinute(100)}), Key: by}},
		Slot:   &nethttp.Slot{Semaphore: streams, Caps: []nethttp.Cap{{Key: by, Limit: 1}}},
		Deny:   func(r *http.Request) bool { return r.Header.Get("X-Deny") != "" },
		Reconsider: func(*http.Request, *nethttp.Admission) bool {
			t.Error("it was reconsidered")
			return false
		},
	})
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		answers(t, get(g.Handler(http.HandlerFunc(ok)), func(r *http.Request) { r.Header.Set("X-User", "ann") }), 429) // full
	}))
	user := func(name string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("X-User", name) }
	}
	answers(t, get(h, user("ann")), 200)
	answers(t, get(h, user("ann"), func(r *http.Request) { r.Header.Set("X-Deny", "yes") }), 403)
	answers(t, get(h), 400)
	answers(t, get(h, user("eve"), func(r *http.Request) { r.URL.Path = "/trap" }), 403)
	answers(t, get(h, user("eve")), 429) // blocked
}

func answers(t *testing.T, r *http.Response, status int) {
	t.Helper()
	gatetest.Equal(t, r.StatusCode, status, "status")
}

// login is a handler that answers with the status that the request asks for.
func login(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Query().Get("password") {
	case "right":
		w.WriteHeader(http.StatusOK)
	case "panic":
		panic(http.ErrAbortHandler)
	default:
		w.WriteHeader(http.StatusUnauthorized)
	}
}

func asking(target string) func(*http.Request) {
	return func(r *http.Request) {
		path, query, _ := strings.Cut(target, "?")
		r.URL.Path, r.URL.RawQuery = path, query
	}
}

func bans(t *testing.T, b core.Block) *core.Policy {
	t.Helper()
	return policy(t, core.PolicyConfig{Name: "bans", Algorithm: b})
}

// Three failed logins in ten minutes block the address for an hour, unless one succeeds.
func TestBlockAfterFailures(t *testing.T) {
	c := newClock()
	ban := core.Block{Strikes: 3, Within: 10 * time.Minute, For: time.Hour}
	h := blocking(t, memory(t, c), ban, core.FixedWindow{Limit: 100, Window: 10 * time.Hour}, keyfunc.RemoteIP(), func(b *nethttp.BlockRule) {
		b.Strikes, b.Forget = nethttp.StrikeOn(http.StatusUnauthorized), nethttp.ForgetOn(http.StatusOK)
	})
	wrong, right := asking("/login?password=wrong"), asking("/login?password=right")
	for _, try := range []struct {
		request func(*http.Request)
		status  int
	}{{wrong, 401}, {wrong, 401}, {right, 200}, {wrong, 401}, {wrong, 401}, {wrong, 401}} {
		answers(t, get(h, try.request), try.status)
	}
	r := get(h, right)
	expect(t, r, http.StatusTooManyRequests, map[string]string{
		"Retry-After": "3600", "Cache-Control": "no-store",
		"RateLimit-Policy": `"all";q=100;w=36000`, "RateLimit": `"all";r=94;t=36000`,
	})
	var problem struct {
		Type, Title, Detail string
		Violated            []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(body(t, r)), &problem); err != nil || !strings.HasSuffix(problem.Type, "#abnormal-usage-detected") ||
		problem.Title != "Abnormal Usage Detected" || !strings.Contains(problem.Detail, "blocked") || len(problem.Violated) != 1 || problem.Violated[0] != "bans" {
		t.Errorf("%+v: %v", problem, err)
	}
	answers(t, get(h, right, func(r *http.Request) { r.RemoteAddr = "192.0.2.99:1" }), http.StatusOK)
	c.advance(time.Hour)
	expect(t, get(h, right), http.StatusOK, map[string]string{
		"RateLimit-Policy": `"all";q=100;w=36000`, "RateLimit": `"all";r=93;t=32400`, // the blocked one spent nothing
	})
}

func TestBlockOfDeniedRequests(t *testing.T) {
	c := newClock()
	ban := core.Block{Strikes: 2, Within: time.Minute, For: time.Minute, Most: time.Hour}
	h := blocking(t, memory(t, c), ban, core.FixedWindow{Limit: 2, Window: time.Second}, keyfunc.RemoteIP(), func(b *nethttp.BlockRule) {
		b.Denied, b.HideRetryAfter = true, true
	})
	right := asking("/login?password=right")
	for _, want := range []struct{ status, wait string }{{"200", ""}, {"200", ""}, {"429", "1"}, {"429", "1"}, {"429", ""}, {"429", ""}} {
		r := get(h, right)
		if r.Status[:3] != want.status || r.Header.Get("Retry-After") != want.wait {
			t.Errorf("status %s, Retry-After %q, want %v", r.Status, r.Header.Get("Retry-After"), want)
		}
	}
	c.advance(time.Minute)
	for range 4 {
		get(h, right)
	}
	c.advance(2*time.Minute - time.Second)
	answers(t, get(h, right), http.StatusTooManyRequests)
	c.advance(time.Second)
	answers(t, get(h, right), http.StatusOK)
}

func TestTrap(t *testing.T) {
	c := newClock()
	ban := core.Block{Strikes: 2, Within: time.Minute, For: time.Hour}
	h := blocking(t, memory(t, c), ban, core.FixedWindow{Limit: 9, Window: time.Hour}, keyfunc.RemoteIP(), func(b *nethttp.BlockRule) {
		b.Trap = func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/wp-") }
	})
	for _, try := range []struct {
		path   string
		status int
	}{{"/", 200}, {"/wp-login.php", 403}, {"/", 200}, {"/wp-admin", 403}, {"/", 429}, {"/wp-admin", 429}} {
		r := get(h, asking(try.path+"?password=right"))
		gatetest.Equal(t, r.StatusCode, try.status, "%s", try.path)
		if try.status == http.StatusForbidden && r.Header.Get("Retry-After")+r.Header.Get("RateLimit") != "" {
			t.Errorf("%s: headers %v", try.path, r.Header)
		}
	}
	c.advance(time.Hour)
	gatetest.Equal(t, get(h).Header.Get("RateLimit"), `"all";r=8;t=3600`, "what was refused has spent something")
}

// A trap, and a block, come before a rule that finds no key.
func TestBlockBeforeRuleWithoutKey(t *testing.T) {
	ban := core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}
	h := blocking(t, memory(t, newClock()), ban, core.PerSecond(100), keyfunc.Must(keyfunc.Header("User")), func(b *nethttp.BlockRule) {
		b.NoKey, b.Trap = nethttp.NoKeySkip, func(r *http.Request) bool { return r.URL.Path == "/trap" }
	})
	for _, try := range []struct {
		path, addr string
		status     int
	}{{"/", "192.0.2.1:1", 400}, {"/trap", "192.0.2.1:1", 403}, {"/", "192.0.2.1:1", 429}, {"/trap", "@", 403}, {"/", "@", 400}} {
		r := get(h, asking(try.path), func(r *http.Request) { r.RemoteAddr = try.addr })
		gatetest.Equal(t, r.StatusCode, try.status, "%s of %s", try.path, try.addr)
	}
}

// block blocks a key under a policy of bans.
func block(t *testing.T, gate *core.Gate, ban *core.Policy, key string) {
	t.Helper()
	gatetest.NoError(t, core.Must(core.NewBlocklist(gate, ban)).Block(t.Context(), core.Must(core.NewKey(key)), time.Hour))
}

// Allow, deny, block, limits: in this order.
func TestAllowAndDeny(t *testing.T) {
	gate := memory(t, newClock())
	of := func(addr string) func(*http.Request) bool {
		return core.Must(keyfunc.InNetworks(keyfunc.RemoteIP(), addr))
	}
	ban := bans(t, core.Block{Strikes: 1, Within: time.Minute, For: time.Hour})
	h := served(t, nethttp.Config{
		Gate: gate, Skip: of("10.0.0.1"), Deny: of("10.0.0.0/24"),
		Blocks: []nethttp.BlockRule{{Policy: ban, Key: keyfunc.RemoteIP(), Denied: true}},
		Rules:  rules(t, core.PolicyConfig{Name: "one", Algorithm: core.FixedWindow{Limit: 1, Window: time.Second}}),
	})
	at := func(addr string) *http.Response {
		return get(h, func(r *http.Request) { r.RemoteAddr = addr + ":1" })
	}
	block(t, gate, ban, "10.0.0.1") // the block of either decides nothing
	block(t, gate, ban, "10.0.0.2")
	for range 2 {
		expect(t, at("10.0.0.1"), http.StatusOK, nil)
		expect(t, at("10.0.0.2"), http.StatusForbidden, map[string]string{"Cache-Control": "no-store"})
	}
	for i, want := range []string{"200 ", "429 1", "429 3600"} { // admitted, denied by the limit, blocked
		r := at("10.0.1.1")
		gatetest.Equal(t, r.Status[:4]+r.Header.Get("Retry-After"), want, "request %d", i)
	}
}

// A blocked client costs one round trip, and for the next second none.
func TestBlockedClientCostsNoRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gate := gatetest.Redis(t, s.Client(t), core.Config{Prefix: s.Prefix})
	ban := core.Block{Strikes: 1, Within: time.Minute, For: time.Hour}
	h := blocking(t, gate, ban, core.PerSecond(100), keyfunc.Must(keyfunc.Header("User")), func(*nethttp.BlockRule) {})
	block(t, gate, bans(t, ban), "192.0.2.1")
	before := s.Calls(t, "evalsha", "eval")
	const requests = 100
	for user := range requests { // what else a request is charged does not matter
		r := get(h, func(r *http.Request) { r.Header.Set("User", strconv.Itoa(user)) })
		if r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" {
			t.Fatalf("status %d, %v", r.StatusCode, r.Header)
		}
	}
	// A slow machine may take longer than the second for which a denial is remembered.
	if n := s.Calls(t, "evalsha", "eval") - before; n >= requests/2 {
		t.Errorf("%d round trips for %d requests", n, requests)
	}
}

// blocking returns a handler behind a block by the client's address and a rule by key.
func blocking(t *testing.T, gate *core.Gate, ban core.Block, limit core.Algorithm, key keyfunc.Func, change func(*nethttp.BlockRule)) http.HandlerFunc {
	t.Helper()
	block := nethttp.BlockRule{Policy: bans(t, ban), Key: keyfunc.RemoteIP()}
	change(&block)
	g := guard(t, nethttp.Config{
		Gate: gate, Blocks: []nethttp.BlockRule{block},
		Rules: []nethttp.Rule{{Policy: policy(t, core.PolicyConfig{Name: "all", Algorithm: limit}), Key: key}},
	})
	return g.Handler(http.HandlerFunc(login)).ServeHTTP
}
