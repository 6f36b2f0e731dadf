package semaphore_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// eachAdmission runs f on every Gate: once with charges whose keys share the slot's outermost part,
// and once with other charges.
func eachAdmission(t *testing.T, cfg core.Config, f func(t *testing.T, g *core.Gate, level semaphore.Cap, charge func(*core.Policy) core.Charge)) {
	t.Helper()
	eachLeaseGateWith(t, cfg, func(t *testing.T, g *core.Gate) {
		for _, outermost := range []string{"acme", "other"} {
			t.Run("charge on "+outermost, func(t *testing.T) {
				key := newKey(t, outermost, t.Name())
				f(t, g, semaphore.Cap{Key: newKey(t, "acme", "user"), Limit: 1}, func(p *core.Policy) core.Charge {
					t.Cleanup(func() {
						worked(t, g.Reset(context.Background(), core.Charge{Policy: p, Key: key}))
					})
					return core.Charge{Policy: p, Key: key, Cost: 1}
				})
			})
		}
	})
}

func checkUsed(t *testing.T, g *core.Gate, want int64, charges ...core.Charge) {
	t.Helper()
	d := peek(t, g, charges...)
	for i := range d.Len() {
		gatetest.Equal(t, d.At(i).Used, want, "used")
	}
}

// awaitQueue returns once want callers are queued. A caller that gives up leaves the queue in the
// background.
func awaitQueue(t *testing.T, s *semaphore.Semaphore, key core.Key, want int) {
	t.Helper()
	for {
		_, waiting, err := s.Holders(t.Context(), key)
		noError(t, err)
		if waiting == want {
			return
		}
	}
}

func TestAdmitTakesSlotAndChargesOrNeither(t *testing.T) {
	t.Parallel()
	for name, topology := range map[string]core.Topology{
		"one script": core.TopologyOneServer, "one script for each outermost part": core.TopologyCluster,
	} {
		t.Run(name, func(t *testing.T) {
			eachAdmission(t, core.Config{Topology: topology}, func(t *testing.T, g *core.Gate, level semaphore.Cap, charge func(*core.Policy) core.Charge) {
				s := newSemaphore(t, g, semaphore.Config{})
				ask := semaphore.Request{Caps: []semaphore.Cap{level}}
				two := charge(limited(t, "two", frozen(2)))
				held := charge(newPolicy(t, core.PolicyConfig{Name: "held", Algorithm: frozen(2), Hold: time.Minute}))
				shadow := charge(newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: core.DenyAll{}, Shadow: true}))
				tight := charge(newPolicy(t, core.PolicyConfig{Name: "tight", Algorithm: frozen(1), Shadow: true}))

				l, d, err := s.Admit(t.Context(), ask, two, shadow, tight)
				if err != nil || !d.Allowed || l.InUse() != 1 || l.Token() == 0 && d.Source == core.SourceRedis || d.Len() != 3 || d.At(0).Used != 1 {
					t.Fatalf("%s, %v in use, %v", show(d), l.InUse(), err)
				}
				checkUsed(t, g, 1, two)

				// No slot is left: nothing is spent or held, and the results say what could be spent.
				gatetest.Must(g.Decide(t.Context(), held))(t)
				var full *semaphore.FullError
				none, d, err := s.Admit(t.Context(), ask, two, shadow, tight, held)
				if none != nil || !errors.As(err, &full) || full.InUse != 1 || full.Limit != 1 || full.Queue {
					t.Fatalf("%v, %v", none, err)
				}
				if d.Allowed || !d.At(0).Allowed || d.At(0).Used != 1 || d.At(0).Remaining != 1 || d.At(2).Allowed || d.At(2).Used != 1 || d.At(3).Used != 1 || d.At(3).Held != 0 {
					t.Errorf("%s, %d held", show(d), d.At(3).Held)
				}
				checkUsed(t, g, 1, two)
				release(t, l)

				l, d, err = s.Admit(t.Context(), ask, two, tight)
				if err != nil || !d.Allowed || d.At(0).Remaining != 0 || l.InUse() != 1 {
					t.Fatalf("%s, %v in use, %v", show(d), l.InUse(), err)
				}
				release(t, l)

				// The charge denies: no slot is taken, and a denial is not an error.
				none, d, err = s.Admit(t.Context(), ask, two)
				if none != nil || err != nil || d.Allowed || d.At(0).Allowed || d.At(0).RetryAfter != core.Never {
					t.Fatalf("%v, %s, %v", none, show(d), err)
				}
				if holders, _, err := s.Holders(t.Context(), level.Key); err != nil || len(holders) > 0 {
					t.Errorf("%v, %v", holders, err)
				}
			})
		})
	}
}

func TestAdmitWithStatelessCharges(t *testing.T) {
	t.Parallel()
	eachAdmission(t, core.Config{}, func(t *testing.T, g *core.Gate, level semaphore.Cap, charge func(*core.Policy) core.Charge) {
		s := newSemaphore(t, g, semaphore.Config{})
		ask := semaphore.Request{Caps: []semaphore.Cap{level}}
		unlimited, never := charge(limited(t, "unlimited", core.Unlimited{})), charge(limited(t, "never", core.DenyAll{}))
		for _, charges := range [][]core.Charge{nil, {unlimited}} {
			l, d, err := s.Admit(t.Context(), ask, charges...)
			if err != nil || !d.Allowed || d.Len() != len(charges) {
				t.Fatalf("%d charges: %s, %v", len(charges), show(d), err)
			}
			release(t, l)
		}
		if l, d, err := s.Admit(t.Context(), ask, unlimited, never); l != nil || err != nil || d.Allowed {
			t.Fatalf("%s, %v", show(d), err)
		}
		if _, _, err := s.Admit(t.Context(), semaphore.Request{}, unlimited); !errors.Is(err, semaphore.ErrRequest) {
			t.Error(err)
		}
		if _, _, err := s.Admit(t.Context(), ask, core.Charge{}); !errors.Is(err, core.ErrCharge) {
			t.Error(err)
		}
		if holders, _, err := s.Holders(t.Context(), level.Key); err != nil || len(holders) > 0 {
			t.Errorf("%v, %v", holders, err)
		}
	})
}

// Charges spent together with a slot can be settled, even after Detach, by the holder of the
// detached lease.
func TestAdmittedChargesCanBeSettled(t *testing.T) {
	t.Parallel()
	eachAdmission(t, core.Config{}, func(t *testing.T, g *core.Gate, level semaphore.Cap, charge func(*core.Policy) core.Charge) {
		s := newSemaphore(t, g, semaphore.Config{})
		c := charge(limited(t, "tokens", frozen(100)))
		c.Cost = 50
		for _, maxWait := range []time.Duration{0, semaphore.Forever} {
			l, _, err := s.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: maxWait}, c)
			noError(t, err)
			checkUsed(t, g, 50, c)
			l = l.Detach()
			noError(t, l.Reservation().Settle(t.Context(), 7))
			checkUsed(t, g, 7, c)
			release(t, l)
			noError(t, g.Reset(t.Context(), c))
		}
	})
}

// A caller that waits for a slot has spent its charges. They are refunded if it gets no slot.
func TestAdmitRefundsWithoutSlot(t *testing.T) {
	t.Parallel()
	eachAdmission(t, core.Config{}, func(t *testing.T, g *core.Gate, level semaphore.Cap, charge func(*core.Policy) core.Charge) {
		s := newSemaphore(t, g, semaphore.Config{MaxWaiters: 1})
		c := charge(limited(t, "p", frozen(10)))
		first := acquire(t, s, level)

		queued := make(chan struct{})
		got := make(chan *semaphore.Lease)
		go func() {
			ask := semaphore.Request{
				Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { close(queued) },
			}
			l, d, err := s.Admit(t.Context(), ask, c)
			if err != nil || !d.Allowed || d.At(0).Used != 1 {
				t.Errorf("%s, %v", show(d), err)
			}
			got <- l
		}()
		<-queued
		checkUsed(t, g, 1, c)

		// The queue is full.
		var full *semaphore.FullError
		l, d, err := s.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever}, c)
		if l != nil || !errors.As(err, &full) || !full.Queue || d.Allowed || !d.At(0).Allowed || d.At(0).Used != 1 {
			t.Errorf("%s, %v", show(d), err)
		}
		checkUsed(t, g, 1, c)

		// After a panic in the caller's callback nothing is spent and nobody is queued.
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Admit did not panic")
				}
			}()
			_, _, _ = newSemaphore(t, g, semaphore.Config{MaxWaiters: 9}).Admit(t.Context(), semaphore.Request{
				Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { panic("callback") },
			}, c)
		}()
		checkUsed(t, g, 1, c)
		awaitQueue(t, s, level.Key, 1)

		release(t, first)
		release(t, <-got)
		checkUsed(t, g, 1, c)

		// A caller whose context is cancelled gets its charges refunded.
		first = acquire(t, s, level)
		ctx, cancel := context.WithCancel(t.Context())
		l, _, err = s.Admit(ctx, semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { cancel() }}, c)
		if l != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		checkUsed(t, g, 1, c)
		awaitQueue(t, s, level.Key, 0)
		// A caller whose MaxWait is over gets its charges refunded.
		l, _, err = s.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: time.Millisecond}, c)
		if l != nil || !errors.As(err, &full) || !full.Queue {
			t.Errorf("%v", err)
		}
		checkUsed(t, g, 1, c)
		awaitQueue(t, s, level.Key, 0)
		release(t, first)
	})
}

// Admit sends charges and slot in one script, on a cluster too if their keys share the outermost
// part.
func TestAdmissionTakesOneScript(t *testing.T) {
	t.Parallel()
	for _, topology := range []core.Topology{core.TopologyOneServer, core.TopologyCluster} {
		s := redistest.Start(t)
		g := redisGate(t, s.Client(t), core.Config{Topology: topology})
		sem := newSemaphore(t, g, semaphore.Config{})
		level := semaphore.Cap{Key: newKey(t, "acme", "user"), Limit: 2}
		charges := []core.Charge{
			{Policy: limited(t, "tenant", core.PerHour(100)), Key: newKey(t, "acme"), Cost: 1},
			{Policy: limited(t, "month", core.Calendar{Limit: 100, Every: core.PeriodMonth, In: time.UTC}), Key: newKey(t, "acme", "user"), Cost: 1},
		}
		ask := semaphore.Request{Caps: []semaphore.Cap{level}}
		release(t, func() *semaphore.Lease { // loads the scripts
			l, _, err := sem.Admit(t.Context(), ask, charges...)
			noError(t, err)
			return l
		}())
		before := s.Calls(t, "evalsha", "eval")
		for range 3 {
			_, _, _ = sem.Admit(t.Context(), ask, charges...)
		}
		if n := s.Calls(t, "evalsha", "eval") - before; n != 3 {
			t.Errorf("%d scripts for 3 admissions, topology %v", n, topology)
		}
	}
}

// While Redis is stopped, the failure modes of the charges and of the slot decide.
func TestAdmitDuringOutage(t *testing.T) {
	t.Parallel()
	modes := []struct {
		name    string
		mode    core.FailureMode
		source  core.Source
		allowed bool
	}{
		{"local", core.FailLocal, core.SourceLocal, true},
		{"open", core.FailOpen, core.SourceOpen, true},
		{"closed", core.FailClosed, core.SourceClosed, false},
	}
	for _, m := range modes {
		for _, n := range modes {
			t.Run("charges "+m.name+", slots "+n.name, func(t *testing.T) {
				s := redistest.Start(t)
				g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout})
				sem := newSemaphore(t, g, semaphore.Config{OnFailure: n.mode})
				c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(5), OnFailure: m.mode}), Key: newKey(t, "k"), Cost: 1}
				ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}}
				viaRedis(t, g, c)
				s.Stop()
				defer s.Continue()
				l, d, err := sem.Admit(t.Context(), ask, c)
				switch {
				case !m.allowed:
					if l != nil || d.Allowed || err != nil || d.Source != core.SourceClosed {
						t.Errorf("%s, %v", show(d), err)
					}
				case !n.allowed:
					if l != nil || d.Allowed || err == nil || errors.Is(err, semaphore.ErrFull) {
						t.Errorf("%s, %v", show(d), err)
					}
				default:
					if l == nil || !d.Allowed || d.Source != m.source || err != nil {
						t.Fatalf("%s, %v", show(d), err)
					}
					again, d, err := sem.Admit(t.Context(), ask, c)
					if n.mode == core.FailLocal && (again != nil || !errors.Is(err, semaphore.ErrFull) || m.mode == core.FailLocal && d.At(0).Used != 1) {
						t.Errorf("%s, %v", show(d), err)
					}
					if n.mode == core.FailOpen && again == nil {
						t.Errorf("open slots have a limit: %s, %v", show(d), err)
					}
				}
			})
		}
	}
}

// The failure mode decides on a caller without a slot whose charges Redis does not answer again.
func TestAdmitInOutageThatBeginsBeforeTheWait(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	sem := newSemaphore(t, redisGate(t, client, core.Config{}), semaphore.Config{})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	defer release(t, acquire(t, sem, level))
	var answered atomic.Int32
	client.AddHook(onScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if answered.CompareAndSwap(1, 2) {
			return gatetest.Fail(cmds, errors.New("the connection is lost"))
		}
		err := send()
		if err == nil {
			answered.Add(1)
		}
		return err
	}))
	c := core.Charge{Policy: limited(t, "p", frozen(5)), Key: level.Key, Cost: core.NoCost}
	ask := semaphore.Request{Caps: []semaphore.Cap{level}, MaxWait: time.Millisecond}
	if _, d, err := sem.Admit(t.Context(), ask, c); !errors.Is(err, semaphore.ErrFull) || d.Source != core.SourceLocal {
		t.Errorf("%s, %v", show(d), err)
	}
}

// A slot keeps what was spent with it, and so does its reservation after the slot is released.
func TestSlotKeepsItsReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		p, key := heldFor(t, 3*time.Second), newKey(t, "k")
		s := newSemaphore(t, g, semaphore.Config{TTL: 10 * time.Second})
		ask := semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}
		l, d, err := s.Admit(t.Context(), ask, core.Charge{Policy: p, Key: key, Cost: 4})
		if l == nil {
			t.Fatal(show(d), err)
		}
		time.Sleep(time.Hour)
		wantUsed(t, g, p, key, 4)
		release(t, l)
		time.Sleep(time.Hour)
		settle(t, l.Reservation(), 3)
		wantUsed(t, g, p, key, 3)
	})
}

// A request keeps what it holds while it waits for a slot.
func TestWaiterKeepsItsReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memoryGate(t, core.Config{})
		p, key := heldFor(t, 3*time.Second), newKey(t, "k")
		s := newSemaphore(t, g, semaphore.Config{TTL: 10 * time.Second, MaxWaiters: 1})
		ask := semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}, MaxWait: time.Hour}
		first := acquire(t, s, ask.Caps...)
		done := make(chan struct{})
		go func() {
			defer close(done)
			l, d, err := s.Admit(t.Context(), ask, core.Charge{Policy: p, Key: key, Cost: 4})
			if l == nil {
				t.Error(show(d), err)
				return
			}
			settle(t, l.Reservation(), 4)
			_ = l.Release(t.Context()) // memory does not fail
		}()
		time.Sleep(time.Minute)
		wantUsed(t, g, p, key, 4)
		release(t, first)
		<-done
	})
}

// A caller that has lost its hold while it waited for a slot is charged again, or denied if others
// have spent what it held.
func TestWaiterWithLostHoldIsChargedAgain(t *testing.T) {
	t.Parallel()
	eachLeaseGate(t, func(t *testing.T, g *core.Gate) {
		for _, spent := range []int64{0, 8} {
			p, key := heldFor(t, time.Hour), newKey(t, "k")
			charge := core.Charge{Policy: p, Key: key, Cost: 4}
			s := newSemaphore(t, g, semaphore.Config{})
			level := semaphore.Cap{Key: key, Limit: 1}
			first := acquire(t, s, level)
			queued, got := make(chan struct{}), make(chan *semaphore.Lease)
			var d core.Decision
			var err error
			go func() {
				var l *semaphore.Lease
				l, d, err = s.Admit(t.Context(), semaphore.Request{
					Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { close(queued) },
				}, charge)
				got <- l
			}()
			<-queued
			checkUsed(t, g, 4, charge)
			if err := g.Reset(t.Context(), charge); err != nil { // as if Redis had lost its data
				t.Fatal(err)
			}
			if spent > 0 {
				decide(t, g, core.Charge{Policy: p, Key: key, Cost: spent})
			}
			release(t, first)
			l := <-got
			if err != nil || (l != nil) != (spent == 0) || d.Allowed != (l != nil) || d.At(0).Used != max(4, spent) {
				t.Errorf("%d spent: %s, %v", spent, show(d), err)
			}
			checkUsed(t, g, max(4, spent), charge)
			if l != nil {
				settle(t, l.Reservation(), 3)
				checkUsed(t, g, 3, charge)
				release(t, l)
			}
			if holders, waiting, err := s.Holders(t.Context(), key); err != nil || len(holders) > 0 || waiting > 0 {
				t.Errorf("%v hold, %d wait, %v", holders, waiting, err)
			}
			noError(t, g.Reset(t.Context(), charge))
		}
	})
}
