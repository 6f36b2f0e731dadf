package core_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// pauseHook pauses the scripts of a client until the test lets them pass, one at a time.
type pauseHook struct {
	pass    chan struct{}
	begun   atomic.Int64
	paused  atomic.Int64
	passed  atomic.Int64
	failing atomic.Bool // scripts that pass fail with errBroken
}

var errBroken = errors.New("broken")

func (h *pauseHook) pause(ctx context.Context, cmds []redis.Cmder, send func() error) error {
	if cmds[0].Name() != "evalsha" { // the greeting of a new connection
		return send()
	}
	h.begun.Add(1)
	h.paused.Add(1)
	select {
	case <-h.pass:
	case <-ctx.Done():
	}
	h.passed.Add(1)
	h.paused.Add(-1)
	if h.failing.Load() {
		return errBroken
	}
	return send()
}

// untimedConn has no deadlines: those of a socket are not in the clock of a bubble.
type untimedConn struct{ net.Conn }

func (untimedConn) SetDeadline(time.Time) error      { return nil }
func (untimedConn) SetReadDeadline(time.Time) error  { return nil }
func (untimedConn) SetWriteDeadline(time.Time) error { return nil }

// busyGate is a Gate with two batches in flight, the maximum for decisions. The test pauses both. It
// runs in a bubble, where no time passes while a server is asked, however slow this machine is.
type busyGate struct {
	*testing.T
	*pauseHook
	server  *redistest.Server
	gate    *core.Gate
	policy  *core.Policy
	key     core.Key
	callers sync.WaitGroup
	waits   atomic.Int64
}

// newBusyGate takes a nil clock for the server's own.
func newBusyGate(
	t *testing.T, s *redistest.Server, cfg core.Config, clock func() int64, split bool,
) *busyGate {
	client := s.Client(t, func(o *redis.Options) {
		o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
			c, err := net.Dial(network, addr)
			return untimedConn{c}, err
		}
	})
	cfg.Prefix = s.Prefix
	q := &busyGate{
		T: t, server: s, pauseHook: &pauseHook{pass: make(chan struct{})}, gate: redisGate(t, client, cfg),
		policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), OnFailure: core.FailClosed}), key: newKey(t, "hot"),
	}
	if clock != nil {
		q.gate.InjectServerClock(clock)
	}
	if split {
		q.gate.SplitByOutermost()
	}
	decide(t, q.gate, core.Charge{Policy: q.policy, Key: newKey(t, "warm"), Cost: 1})
	client.AddHook(gatetest.OnCommands(q.pause))
	q.fill()
	return q
}

// fill starts as many batches as may be in flight.
func (q *busyGate) fill() {
	for i := range 2 {
		first := newKey(q, "first", string(rune('a'+i)))
		q.callers.Go(func() {
			_, _ = q.gate.Decide(context.Background(), core.Charge{Policy: q.policy, Key: first})
		})
		q.waitUntil(func() bool { return q.paused.Load() == int64(i+1) })
	}
	q.waits.Store(0)
}

// counts returns a context that counts its caller among those that have begun to wait for a batch.
func (q *busyGate) counts(ctx context.Context) context.Context {
	return waitingContext{ctx, &q.waits}
}

// waitingContext counts how often somebody waits for its end. A call of a Gate does once its place in
// the queue is taken, unless its caller sends it.
type waitingContext struct {
	context.Context
	waits *atomic.Int64
}

func (c waitingContext) Done() <-chan struct{} {
	c.waits.Add(1)
	return c.Context.Done()
}

// waiting returns how many calls have begun to wait since two batches were in flight.
func (q *busyGate) waiting() int { return int(q.waits.Load()) }

type answer struct {
	core.Decision
	err error
}

// decideAsync decides in the background.
func (q *busyGate) decideAsync(ctx context.Context, c core.Charge) <-chan answer {
	ch := make(chan answer, 1)
	q.callers.Go(func() {
		d, err := q.gate.Decide(q.counts(ctx), c)
		ch <- answer{d, err}
	})
	return ch
}

// enqueue charges 1 unit to the hot key in the background. It returns once the call is queued
// behind that many others.
func (q *busyGate) enqueue(ctx context.Context, behind int) <-chan answer {
	ch := q.decideAsync(ctx, core.Charge{Policy: q.policy, Key: q.key, Cost: 1})
	q.waitUntil(func() bool { return q.waiting() == behind+1 })
	return ch
}

func (q *busyGate) waitUntil(is func() bool) {
	q.Helper()
	eventually(q.T, "the queue is as it should be", is)
}

// passOne lets one paused batch pass, and returns once the next batch is paused.
func (q *busyGate) passOne() {
	n := q.begun.Load()
	q.pass <- struct{}{}
	q.waitUntil(func() bool { return q.begun.Load() > n && q.paused.Load() == 2 })
}

// passAll lets every batch pass until all callers have returned.
func (q *busyGate) passAll() {
	done := make(chan struct{})
	go func() { q.callers.Wait(); close(done) }()
	for {
		select {
		case q.pass <- struct{}{}:
		case <-done:
			return
		}
	}
}

// used lets every batch pass and returns how much of the hot key is spent.
func (q *busyGate) used() int64 {
	ch := make(chan int64, 1)
	q.callers.Go(func() {
		d, err := q.gate.Peek(context.Background(), core.Charge{Policy: q.policy, Key: q.key, Cost: 1})
		if err != nil || d.Cause != nil {
			q.Error(err, d.Cause)
		}
		ch <- d.At(0).Used
	})
	q.passAll()
	return <-ch
}

func eachBusyGate(t *testing.T, cfg core.Config, f func(q *busyGate)) {
	eachBusyGateOn(t, nil, cfg, f)
}

// eachBusyGateOn runs f with Gates whose server has that clock.
func eachBusyGateOn(t *testing.T, clock func() int64, cfg core.Config, f func(q *busyGate)) {
	for _, split := range []bool{false, true} {
		t.Run(map[bool]string{false: "one script", true: "a script for each slot"}[split], func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				synctest.Test(t, func(t *testing.T) { f(newBusyGate(t, s, cfg, clock, split)) })
			})
		})
	}
}

// Callers are served in the order of their arrival, within a batch and across batches.
func TestSharedRoundTripKeepsOrder(t *testing.T) {
	t.Parallel()
	eachBusyGate(t, core.Config{Timeout: 10 * time.Second}, func(q *busyGate) {
		var answers []<-chan answer
		p := limited(q, "q", frozen(135))
		for i := range 140 { // more than one batch holds
			answers = append(answers, q.decideAsync(q.Context(), core.Charge{Policy: p, Key: q.key, Cost: 1}))
			q.waitUntil(func() bool { return q.waiting() == i+1 })
		}
		q.passOne()
		q.passAll()
		var before int64
		// Two batches are in flight at a time, and the later one may overtake.
		breaks, admitted := 0, 0
		for i, ch := range answers {
			a := <-ch
			if a.err != nil || a.Cause != nil {
				q.Errorf("caller %d: %v, %s", i, a.err, show(a.Decision))
			}
			if a.At(0).Remaining != max(0, before-1) {
				breaks++
			}
			if a.Allowed {
				admitted++
			}
			before = a.At(0).Remaining
		}
		if most := 3 * 6; breaks > most || admitted != 135 {
			q.Errorf("%d callers out of order, %d admitted", breaks, admitted)
		}
	})
}

func TestQueuedCallerThatLeavesIsNotCharged(t *testing.T) {
	t.Parallel()
	eachBusyGate(t, core.Config{}, func(q *busyGate) {
		ctx, cancel := context.WithCancel(q.Context())
		leaver, stayer := q.enqueue(ctx, 0), q.enqueue(q.Context(), 1)
		cancel()
		gatetest.Is(q, (<-leaver).err, context.Canceled, "leaver")
		q.passAll()
		if a := <-stayer; !a.Allowed || a.Cause != nil {
			q.Errorf("%+v", a)
		}
		gatetest.Equal(q, q.used(), 1, "used")
	})
}

// enqueuePair enqueues two callers that share a paused batch. It returns their answers and the
// functions that cancel their contexts.
func (q *busyGate) enqueuePair() (answers [2]<-chan answer, leave [2]context.CancelFunc) {
	for i := range 2 {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(q.Context())
		answers[i] = q.enqueue(ctx, i)
	}
	q.passOne()
	return answers, leave
}

// Callers leave their batch at once, and the others get their answers. Redis counts what it was sent for
// all of them.
func TestLeavingABatchAffectsNoOtherCaller(t *testing.T) {
	t.Parallel()
	for _, leavers := range [][]int{{0}, {1}, {0, 1}} {
		eachBusyGate(t, core.Config{}, func(q *busyGate) {
			answers, leave := q.enqueuePair()
			for _, i := range leavers {
				leave[i]()
				gatetest.Is(q, (<-answers[i]).err, context.Canceled, "leaver")
			}
			q.passAll()
			if stays := 1 - leavers[0]; len(leavers) == 1 {
				a := <-answers[stays]
				gatetest.Equal(q, a.Allowed && a.Cause == nil, true, "%+v: admitted", a)
				leave[stays]()
			}
			q.waitUntil(func() bool { return q.used() == 2 }) // nobody waits for a batch of leavers
		})
	}
}

// A caller's deadline does not shorten that of callers with more time.
func TestDeadlineEndsNoOtherCall(t *testing.T) {
	t.Parallel()
	eachBusyGate(t, core.Config{Timeout: longTimeout}, func(q *busyGate) {
		ctx, cancel := context.WithTimeout(q.Context(), 500*time.Millisecond)
		defer cancel()
		short := q.enqueue(ctx, 0)
		long := q.enqueue(q.Context(), 1)
		q.passOne()
		if a := <-short; a.Allowed {
			q.Errorf("%+v", a)
		}
		q.passAll()
		if a := <-long; !a.Allowed || a.Cause != nil {
			q.Errorf("%+v", a)
		}
	})
}

// Batches that the client holds up end at their deadline. The server answers, so no process decides
// alone.
func TestUnansweredBatchesEndAtDeadline(t *testing.T) {
	t.Parallel()
	modes := map[core.FailureMode]core.Source{
		core.FailOpen: core.SourceOpen, core.FailClosed: core.SourceOverload, core.FailLocal: core.SourceOverload,
	}
	eachBusyGate(t, core.Config{Timeout: busyTimeout}, func(q *busyGate) {
		answers := make(map[core.FailureMode]<-chan answer)
		for mode := range modes {
			p := newPolicy(q, core.PolicyConfig{Name: "mode", Algorithm: frozen(10), OnFailure: mode})
			answers[mode] = q.decideAsync(q.Context(), core.Charge{Policy: p, Key: q.key, Cost: 1})
		}
		for mode, ch := range answers {
			a := <-ch
			if a.err != nil || a.Cause == nil || a.Source != modes[mode] || a.Allowed != (mode == core.FailOpen) {
				q.Errorf("%v: %+v", mode, a)
			}
		}
		q.waitUntil(func() bool {
			again := q.decideAsync(q.Context(), core.Charge{Policy: q.policy, Key: newKey(q, "again"), Cost: 1})
			q.passAll()
			return (<-again).Cause == nil
		})
	})
}

// A connection that breaks counts as one failure, however many callers share it.
func TestBrokenBatchIsOneFailure(t *testing.T) {
	t.Parallel()
	eachBusyGate(t, core.Config{}, func(q *busyGate) {
		var answers []<-chan answer
		for i := range 4 { // few enough for one batch
			answers = append(answers, q.enqueue(q.Context(), i))
		}
		q.passOne()
		q.failing.Store(true)
		q.passAll()
		for _, ch := range answers {
			if a := <-ch; a.err != nil || a.Allowed || a.Cause == nil || a.Source != core.SourceClosed {
				q.Errorf("%+v", a)
			}
		}
		q.failing.Store(false)
		gatetest.Equal(q, q.used(), 0, "used")
	})
}

// Callers whose clock is behind or ahead of the server's by more than a period are decided together
// in the server's period, once the process knows it.
func TestPeriodStartsWhileCallersWait(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"clock behind": 400 * 24 * time.Hour, "clock ahead": -400 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			clock := func() int64 { return time.Now().Add(off).UnixMicro() }
			eachBusyGateOn(t, clock, core.Config{}, func(q *busyGate) {
				ask := func(i int) <-chan answer {
					p := limited(q, "calendar"+strconv.Itoa(i), core.Calendar{Limit: 1, Every: core.PeriodMinute, In: time.UTC})
					return q.decideAsync(q.Context(), core.Charge{Policy: p, Key: q.key, Cost: 1})
				}
				first := ask(0)
				q.waitUntil(func() bool { return q.waiting() == 1 })
				q.passAll()
				if a := <-first; !a.Allowed || a.Cause != nil {
					q.Errorf("%+v", a)
				}
				q.fill()
				var answers []<-chan answer
				for i := range 12 {
					answers = append(answers, ask(1+i))
					q.waitUntil(func() bool { return q.waiting() == i+1 })
				}
				before := q.passed.Load()
				q.passAll()
				// Two batches, asked twice; two callers may lead batches of their own.
				if n := q.passed.Load() - before; n > 6 {
					q.Errorf("%d calls", n)
				}
				for _, ch := range answers {
					if a := <-ch; !a.Allowed || a.Cause != nil {
						q.Errorf("%+v", a)
					}
				}
			})
		})
	}
}

// A key with a foreign value denies only its own caller. Callers that share the script are not
// affected.
func TestForeignValueDeniesOnlyItsCaller(t *testing.T) {
	t.Parallel()
	for _, value := range []string{
		"a list", "", "text", "-5", "xx0000000000000001", "1 0x1a2b3c4d5e6f70", "4200000000000000010", "1 2 3 x",
		"9999999999999999 3 7", "12345678901234567890123 0 1",
		"1800000000000000 0 1 0 0 12345678901234567890123 1800000000000000 0",
		strings.Repeat("            1e30", 6), // resembles a log
	} {
		t.Run(value, func(t *testing.T) {
			t.Parallel()
			eachBusyGate(t, core.Config{}, func(q *busyGate) {
				slow := core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 10}
				if strings.HasSuffix(value, " 3 7") { // the fraction of a state
					slow.Rate = 7
				}
				q.policy = newPolicy(q, core.PolicyConfig{Name: "p", Algorithm: slow, OnFailure: core.FailClosed})
				foreign := core.Charge{Policy: q.policy, Key: newKey(q, "foreign"), Cost: 1}
				if len(value) == 96 {
					log := core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}}}
					foreign.Policy = newPolicy(q, core.PolicyConfig{Name: "log", Algorithm: log, OnFailure: core.FailClosed})
				}
				first := q.decideAsync(q.Context(), foreign)
				q.waitUntil(func() bool { return q.waiting() == 1 })
				q.passAll()
				<-first
				q.fill()
				admin := q.server.Client(q)
				name := admin.Keys(q.Context(), q.server.Prefix+"*foreign*").Val()[0]
				if do(q, admin, "SET", name, value); value == "a list" {
					do(q, admin, "DEL", name)
					do(q, admin, "LPUSH", name, "x")
				}
				before := q.enqueue(q.Context(), 0)
				denied := q.decideAsync(q.Context(), foreign)
				q.waitUntil(func() bool { return q.waiting() == 2 })
				after := q.enqueue(q.Context(), 2)
				q.passAll()
				if a := <-denied; !errors.Is(a.err, core.ErrMisconfigured) || a.Allowed {
					q.Errorf("%+v", a)
				}
				for _, ch := range []<-chan answer{before, after} {
					if a := <-ch; a.err != nil || !a.Allowed || a.Cause != nil {
						q.Errorf("%+v", a)
					}
				}
				gatetest.Equal(q, q.used(), 2, "used")
			})
		})
	}
}

// A key with a foreign value fails only the acquire that asks for it. The others in its script get
// their slots, beside other holders and alone, and give them back in one script.
func TestForeignValueRefusesOnlyItsCaller(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"LPUSH", "SADD", "SET"} {
		t.Run(foreign, func(t *testing.T) {
			eachBusyGate(t, core.Config{}, func(q *busyGate) {
				s := newSemaphore(q, q.gate, semaphore.Config{Name: "s", OnFailure: core.FailClosed})
				var mu sync.Mutex
				errs, tokens := make(map[string]error), make(map[string][]int64)
				run := func(name string, until func() bool) {
					q.callers.Go(func() {
						l, err := s.Acquire(q.counts(q.Context()), semaphore.Request{
							Caps: []semaphore.Cap{{Key: newKey(q, name), Limit: 2}},
						})
						mu.Lock()
						defer mu.Unlock()
						if errs[name] = err; err == nil {
							tokens[name] = append(tokens[name], l.Token())
							q.callers.Go(func() { _ = l.Release(q.Context()) })
						}
					})
					q.waitUntil(until)
				}
				admin, name := q.server.Client(q), q.server.Prefix+":{foreign}:s:se7:m"
				do(q, admin, foreign, name, "x 1 2 3 4")
				run("early", func() bool { return q.paused.Load() == 3 }) // the third batch
				for i, name := range []string{"lone", "foreign", "shared", "shared"} {
					run(name, func() bool { return q.waiting() == i+1 })
				}
				q.passAll()
				close(q.pass) // what failed is released in the background
				if len(errs) != 4 || errs["early"] != nil || errs["lone"] != nil || errs["shared"] != nil ||
					!errors.Is(errs["foreign"], core.ErrMisconfigured) {
					q.Error(errs)
				}
				if len(tokens["shared"]) != 2 || tokens["shared"][0] == tokens["shared"][1] {
					q.Error(tokens)
				}
				if left := redistest.Keys(q, admin, q.server.Prefix+":{*:se7*"); !slices.Equal(left, []string{name}) {
					q.Error(left)
				}
			})
		})
	}
}

// A decision ends at its deadline even if a cluster accepts connections and never answers.
func TestDecisionEndsOnSilentCluster(t *testing.T) {
	for _, inline := range []bool{false, true} {
		l := gatetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		var mute sync.WaitGroup
		mute.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
			}
		})
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{l.Addr().String()}, ReadTimeout: -1, MaxRedirects: -1, ContextTimeoutEnabled: inline,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		g := redisGate(t, client, core.Config{Timeout: 20 * time.Millisecond})
		d, err := g.Decide(t.Context(), core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "k"), Cost: 1})
		if err != nil || d.Source != core.SourceLocal {
			t.Errorf("%+v, %v", d, err)
		}
		_ = l.Close() // ends what the client still waits for
		mute.Wait()
		_ = client.Close()
	}
}

// 256 callers have mixed keys, costs and deadlines, and some give up, while scripts are flushed and
// connections die. No limit is exceeded, and every caller gets an answer.
func TestSharedRoundTripsUnderFaults(t *testing.T) {
	t.Run("one script", func(t *testing.T) {
		s := redistest.Start(t)
		commitStorm(t, redisGate(t, s.Client(t), core.Config{Timeout: time.Second}), s)
	})
	t.Run("a script for each slot", func(t *testing.T) {
		s := redistest.Start(t)
		g := redisGate(t, s.Client(t), core.Config{Timeout: time.Second})
		g.SplitByOutermost()
		commitStorm(t, g, s)
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3)
		commitStorm(t, redisGate(t, c.Client(t), core.Config{Timeout: time.Second}), c.Nodes...)
	})
}

func commitStorm(t *testing.T, g *core.Gate, servers ...*redistest.Server) {
	limits := []core.Algorithm{
		frozen(100), core.FixedWindow{Limit: 100, Window: 24 * time.Hour, FromFirst: true}, core.SlidingWindow{Limit: 100, Window: 24 * time.Hour, Buckets: 10},
		core.SlidingLog{Windows: []core.Window{{Limit: 100, Width: 24 * time.Hour}}}, core.Calendar{Limit: 100, Every: core.PeriodYear, In: time.UTC},
	}
	var policies []*core.Policy
	for i, limit := range limits {
		policies = append(policies, newPolicy(t, core.PolicyConfig{Name: string(rune('p' + i)), Algorithm: limit, OnFailure: core.FailClosed}))
	}
	var keys []core.Key
	for i := range 4 {
		keys = append(keys, newKey(t, string(rune('a'+i)))) // each in its own hash slot
	}
	admitted := make([][4]atomic.Int64, len(limits))
	over := make(chan struct{})
	var faults, callers sync.WaitGroup
	for _, s := range servers {
		admin := s.Client(t)
		faults.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				case <-time.After(20 * time.Millisecond):
				}
				if i%2 == 0 {
					do(t, admin, "SCRIPT", "FLUSH")
				} else {
					do(t, admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				}
			}
		})
	}
	for range 256 {
		callers.Go(func() {
			for range 10 {
				ctx, cancel := context.WithCancel(context.Background())
				switch rand.N(4) {
				case 0:
					go cancel()
				case 1:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.Int64N(5e6)))
				}
				var charges []core.Charge
				key, cost := rand.N(len(keys)), int64(1+rand.N(3))
				used := rand.Perm(len(policies))[:1+rand.N(2)]
				for _, i := range used {
					charges = append(charges, core.Charge{Policy: policies[i], Key: keys[key], Cost: cost})
				}
				d, err := g.Decide(ctx, charges...)
				if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				if d.Allowed {
					for _, i := range used {
						admitted[i][key].Add(cost)
					}
				}
				cancel()
			}
		})
	}
	callers.Wait()
	close(over)
	faults.Wait()
	for i := range admitted {
		for k := range admitted[i] {
			if n := admitted[i][k].Load(); n > 100 || n == 0 {
				t.Errorf("%T: %d of 100 admitted", limits[i], n)
			}
		}
	}
	gatetest.ViaRedis(t, g, core.Charge{Policy: policies[0], Key: newKey(t, "z"), Cost: 1})
}
