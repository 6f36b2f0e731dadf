package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// Thousands of callers at once are no outage: Redis decides for all of them, and nobody's share is
// spent beside the limit.
func TestCrowdIsNoOutage(t *testing.T) {
	s := redistest.Start(t)
	for _, callers := range []int{2000, 5000} {
		g := redisGate(t, s.Client(t), core.Config{Timeout: 2 * busyTimeout})
		noError(t, g.Ping(t.Context()))
		stop := gatetest.Others(t, g)
		p := limited(t, fmt.Sprint("p", callers), frozen(100))
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range 3 {
					d, err := g.Decide(context.Background(), core.Charge{Policy: p, Key: newKey(t, "victim"), Cost: 1})
					if err != nil || d.Source == core.SourceLocal {
						t.Errorf("decided by %v: %v, %v", d.Source, d.Cause, err)
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		wg.Wait()
		stop()
		gatetest.Equal(t, admitted.Load(), 100, "%d callers: admitted", callers)
		worked(t, g.Close(t.Context()))
	}
}

// A flood at the default Config.Timeout admits the limit: no call that alone has no answer in time is
// decided by a share. What is missing was overload: it was counted, and its answer was read late.
// Where a witness with a connection of its own gets no answer in time either, the server is silent,
// and a share may decide.
func TestFloodAdmitsTheLimit(t *testing.T) {
	s := redistest.Start(t)
	runs := 3
	if long() {
		runs = 20
	}
	for run := range runs {
		var opened atomic.Pointer[core.ServerEvent]
		g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout, Observe: func(_ context.Context, e core.Event) {
			if isOp(e, core.OpCircuitOpened) {
				opened.Store(e.(*core.ServerEvent))
			}
		}})
		noError(t, g.Ping(t.Context()))
		longest := witness(t, s.Client(t))
		p, key := limited(t, fmt.Sprint("p", run), frozen(100)), newKey(t, "victim")
		start := make(chan struct{})
		var admitted, overloaded, alone atomic.Int64
		var wg sync.WaitGroup
		for range 5000 {
			wg.Go(func() {
				<-start
				d, err := g.Decide(context.Background(), core.Charge{Policy: p, Key: key, Cost: 1})
				switch {
				case err != nil:
					t.Errorf("%v: %v", d.Source, err)
				case d.Source == core.SourceLocal:
					alone.Add(1)
				case d.Source == core.SourceOverload:
					overloaded.Add(1)
				case d.Allowed:
					admitted.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		silent := longest() >= shortTimeout/2
		if n := alone.Load(); !silent && (n > 0 || opened.Load() != nil) {
			t.Errorf("run %d: a share decided %d times, and the circuit opened: %v", run, n, opened.Load())
		}
		if n := admitted.Load(); n > 100 || n+overloaded.Load()+alone.Load() < 100 {
			t.Errorf("run %d: %d of 100 admitted, %d decisions were overload, %d of a share",
				run, n, overloaded.Load(), alone.Load())
		}
		worked(t, g.Close(t.Context()))
	}
}

// witness asks a server again and again until the func that it returns is called, which returns how
// long the slowest answer took.
func witness(t *testing.T, client *redis.Client) (longest func() time.Duration) {
	t.Helper()
	stop, slowest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var longest time.Duration
		for {
			start := time.Now()
			_ = client.Ping(context.Background()) // an error takes its time, too
			longest = max(longest, time.Since(start))
			select {
			case <-stop:
				slowest <- longest
				return
			default:
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-slowest
	}
}

// Connections that the network has forgotten are dropped together. Each used to cost a probe.
func TestHalfOpenPoolHealsAtOnce(t *testing.T) {
	s := redistest.Start(t)
	link := redistest.StartLink(t, s.Addr)
	client := s.Client(t, func(o *redis.Options) { o.Addr, o.PoolSize = link.Addr, 150 })
	g := redisGate(t, client, core.Config{Timeout: shortTimeout})
	closed := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1_000_000), OnFailure: core.FailClosed})
	c := core.Charge{Policy: closed, Key: newKey(t, "k"), Cost: 1}
	gatetest.ViaRedis(t, g, c)
	var pool sync.WaitGroup
	for range 149 {
		pool.Go(func() { _ = client.BLPop(t.Context(), 50*time.Millisecond, "nothing").Err() })
	}
	pool.Wait()
	if n := link.Freeze(); n < 100 {
		t.Fatalf("%d connections", n)
	}
	denied := 0
	for allowed := 0; allowed < 100; {
		d := gatetest.Must(g.Decide(t.Context(), c))(t)
		if d.Allowed {
			allowed++
		} else {
			denied++ // each takes as long as Config.Timeout
		}
	}
	if denied > 30 {
		t.Errorf("%d decisions denied", denied)
	}
	worked(t, g.Close(t.Context()))
}

// A slow link recovers after its connections were closed, although a new connection takes longer
// than a decision.
func TestSlowLinkRecovers(t *testing.T) {
	for _, roundTrip := range []time.Duration{36, 60, 150, 300} {
		roundTrip *= time.Millisecond
		t.Run(roundTrip.String(), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			link := redistest.StartLink(t, s.Addr)
			client := s.Client(t, func(o *redis.Options) { o.Addr = link.Addr })
			g := redisGate(t, client, core.Config{Timeout: max(100*time.Millisecond, 5*roundTrip/2)})
			closed := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1000), OnFailure: core.FailClosed})
			c := core.Charge{Policy: closed, Key: newKey(t, "k"), Cost: 1}
			link.Delay(roundTrip)
			for range 2 {
				link.Cut()
				gatetest.ViaRedis(t, g, c)
			}
			link.Cut()
			worked(t, g.Ping(t.Context()))
			worked(t, g.Close(t.Context()))
		})
	}
}

// A decision whose Cause is ErrCircuitOpen was not sent. One that was sent before the circuit opened has
// another Cause, because Redis may decide it later.
func TestOpenCircuitSendsNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout})
	p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), OnFailure: core.FailOpen})
	gatetest.ViaRedis(t, g, core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1})
	s.Stop()
	var mu sync.Mutex
	var unasked []core.Charge
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				c := core.Charge{Policy: p, Key: newKey(t, "k", fmt.Sprint(i), fmt.Sprint(n)), Cost: 1}
				d, err := g.Decide(t.Context(), c)
				if err != nil {
					t.Error(err)
					return
				}
				if errors.Is(d.Cause, core.ErrCircuitOpen) {
					mu.Lock()
					defer mu.Unlock()
					unasked = append(unasked, c)
					return
				}
			}
		})
	}
	wg.Wait()
	s.Continue()
	for _, c := range unasked {
		gatetest.ViaRedis(t, g, c)
		gatetest.Equal(t, used(t, g, p, c.Key), 0, "is spent on a key of which Redis was not asked")
	}
}

// The circuit closes when the server answers again, also if nobody asks.
func TestCircuitClosesWithoutCallers(t *testing.T) {
	s := redistest.Start(t)
	changes := make(chan core.Op, 10)
	var last core.DecisionEvent
	g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout, Observe: func(_ context.Context, e core.Event) {
		if isOp(e, core.OpCircuitOpened) || isOp(e, core.OpCircuitClosed) {
			changes <- e.(*core.ServerEvent).Op
		} else if e, ok := e.(*core.DecisionEvent); ok {
			last = *e
		}
	}})
	c := core.Charge{Policy: limited(t, "p", frozen(10)), Key: newKey(t, "k"), Cost: 1}
	gatetest.ViaRedis(t, g, c)
	s.Stop()
	if _, err := g.Decide(t.Context(), c); err != nil || last.Err == nil || last.Decision.Source != core.SourceLocal {
		t.Errorf("%v, told %+v", err, last)
	}
	gatetest.Equal(t, <-changes, core.OpCircuitOpened, "first")
	s.Continue()
	gatetest.Equal(t, <-changes, core.OpCircuitClosed, "then")
	gatetest.Equal(t, decide(t, g, c).Source, core.SourceRedis, "decided by")
}

// A Gate that is closed while its circuit is open tells that the circuit has ended: nothing else would
// ever clear what counts open circuits.
func TestCloseEndsCircuits(t *testing.T) {
	s := redistest.Start(t)
	changes := make(chan core.Op, 10)
	g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout, Observe: func(_ context.Context, e core.Event) {
		if isOp(e, core.OpCircuitOpened) || isOp(e, core.OpCircuitClosed) {
			changes <- e.(*core.ServerEvent).Op
		}
	}})
	c := core.Charge{Policy: limited(t, "p", frozen(10)), Key: newKey(t, "k"), Cost: 1}
	gatetest.ViaRedis(t, g, c)
	s.Stop()
	_, _ = g.Decide(t.Context(), c)
	gatetest.Equal(t, <-changes, core.OpCircuitOpened, "first")
	for range 2 {
		gatetest.Worked(t, g.Close(t.Context()))
	}
	close(changes)
	gatetest.Equal(t, <-changes, core.OpCircuitClosed, "then")
	gatetest.Equal(t, len(changes), 0, "further changes")
}

// Sixteen charges of all algorithms, whether admitted, denied, reserved or cancelled, take one
// command and one script.
func TestSixteenChargesTakeOneRoundTrip(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var sent atomic.Int64
	client.AddHook(gatetest.OnCommands(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		sent.Add(int64(len(cmds)))
		return send()
	}))
	g := redisGate(t, client, core.Config{Prefix: s.Prefix})
	var charges []core.Charge
	for i := range core.MaxCharges {
		charges = append(charges, core.Charge{
			Policy: limited(t, fmt.Sprint("p", i), limitsOfTen[i%len(limitsOfTen)].algorithm),
			Key:    newKey(t, "tenant", fmt.Sprint("user", i%3)), Cost: 1,
		})
	}
	decide(t, g, charges...)

	var reservation *core.Reservation
	is := func(allowed bool) func(core.Decision, error) error {
		return func(d core.Decision, err error) error {
			if err == nil && (d.Allowed != allowed || d.Cause != nil || d.Len() != len(charges)) {
				err = fmt.Errorf("%s", show(d))
			}
			return err
		}
	}
	greedy := append([]core.Charge(nil), charges...)
	greedy[len(greedy)-1].Cost = 11
	tests := []struct {
		name string
		call func() error
	}{
		{"admitted", func() error { return is(true)(g.Decide(t.Context(), charges...)) }},
		{"denied", func() error { return is(false)(g.Decide(t.Context(), greedy...)) }},
		{"peek", func() error { return is(true)(g.Peek(t.Context(), charges...)) }},
		{"at most", func() error {
			n, d, err := atMost(g, t.Context(), charges...)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d granted", n)
			}
			return is(true)(d, err)
		}},
		{"reserved", func() error {
			// An hour is long enough for the queue of the leaky bucket.
			r, d, err := g.Reserve(t.Context(), time.Hour, charges...)
			reservation = r
			return is(true)(d, err)
		}},
		{"cancelled", func() error { return reservation.Cancel(t.Context()) }},
	}
	for _, tt := range tests {
		client, server := sent.Load(), s.Calls(t, "evalsha", "eval")
		if err := tt.call(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		client, server = sent.Load()-client, s.Calls(t, "evalsha", "eval")-server
		if client != 1 || server != 1 {
			t.Errorf("%s: %d commands and %d scripts", tt.name, client, server)
		}
	}
}
