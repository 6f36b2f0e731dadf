package core_test

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/redistest"
)

// held lets calls of a client through one at a time, when the test says so.
type held struct {
	through chan struct{}
	waiting atomic.Int64
	passed  atomic.Int64
	broken  atomic.Bool // what is let through fails
}

var errBroken = errors.New("broken")

func (h *held) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *held) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := h.wait(ctx, cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (h *held) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := h.wait(ctx, cmds[0]); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

func (h *held) wait(ctx context.Context, cmd redis.Cmder) error {
	if cmd.Name() != "evalsha" { // a new connection's greeting
		return nil
	}
	h.waiting.Add(1)
	defer h.waiting.Add(-1)
	defer h.passed.Add(1)
	select {
	case <-h.through:
	case <-ctx.Done():
	}
	if h.broken.Load() {
		return errBroken
	}
	return nil
}

// standstill is a Gate both of whose places in flight are taken by calls that the test holds.
type standstill struct {
	*testing.T
	*held
	server  *redistest.Server
	gate    *core.Gate
	policy  *core.Policy
	key     core.Key
	callers sync.WaitGroup
}

func newStandstill(t *testing.T, s *redistest.Server, cfg core.Config, split bool) *standstill {
	client := s.Client(t)
	cfg.Prefix = s.Prefix
	q := &standstill{
		T: t, server: s, held: &held{through: make(chan struct{})}, gate: redisGate(t, client, cfg),
		policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), OnFailure: core.Closed}), key: newKey(t, "hot"),
	}
	if split {
		q.gate.SplitByOutermost()
	}
	decide(t, q.gate, core.Charge{Policy: q.policy, Key: newKey(t, "warm"), Cost: 1})
	client.AddHook(q.held)
	q.fill()
	return q
}

// fill takes the places in flight.
func (q *standstill) fill() {
	for i := range 2 {
		q.ask(context.Background(), core.Charge{Policy: q.policy, Key: newKey(q, "first", string(rune('a'+i))), Cost: 1})
		q.until(func() bool { return q.waiting.Load() == int64(i+1) })
	}
}

type answer struct {
	core.Decision
	err error
}

// ask decides in the background.
func (q *standstill) ask(ctx context.Context, c core.Charge) <-chan answer {
	ch := make(chan answer, 1)
	q.callers.Go(func() {
		d, err := q.gate.Decide(ctx, c)
		ch <- answer{d, err}
	})
	return ch
}

// queued asks for one of the hot key, and returns once that waits behind so many.
func (q *standstill) queued(ctx context.Context, behind int) <-chan answer {
	ch := q.ask(ctx, core.Charge{Policy: q.policy, Key: q.key, Cost: 1})
	q.until(func() bool { return q.gate.Waiting() == behind+1 })
	return ch
}

func (q *standstill) until(is func() bool) {
	for !is() {
		time.Sleep(10 * time.Microsecond)
	}
}

// next lets a held call go, and returns once the next one is held.
func (q *standstill) next() {
	n := q.gate.Waiting()
	q.through <- struct{}{}
	q.until(func() bool { return q.gate.Waiting() < n && q.waiting.Load() == 2 })
}

// end lets all go that is held.
func (q *standstill) end() {
	done := make(chan struct{})
	go func() { q.callers.Wait(); close(done) }()
	for {
		select {
		case q.through <- struct{}{}:
		case <-done:
			return
		}
	}
}

// used is what is spent of the hot key.
func (q *standstill) used() int64 {
	ch := make(chan int64, 1)
	q.callers.Go(func() {
		d, err := q.gate.Peek(context.Background(), core.Charge{Policy: q.policy, Key: q.key, Cost: 1})
		if err != nil || d.Cause != nil {
			q.Error(err, d.Cause)
		}
		ch <- d.At(0).Used
	})
	q.end()
	if n := q.gate.Waiting(); n > 0 {
		q.Errorf("%d still wait", n)
	}
	return <-ch
}

func eachStandstill(t *testing.T, cfg core.Config, f func(q *standstill)) {
	for _, split := range []bool{false, true} {
		t.Run(map[bool]string{false: "one script", true: "a script for each slot"}[split], func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) { f(newStandstill(t, s, cfg, split)) })
		})
	}
}

// Who comes first is served first, alone or among equals.
func TestSharedRoundTripKeepsOrder(t *testing.T) {
	// One deadline for all: of several, one of the latest leads, who may have come last.
	eachStandstill(t, core.Config{Timeout: 10 * time.Second}, func(q *standstill) {
		var answers []<-chan answer
		p := limited(t, "q", frozen(135))
		for i := range 140 { // more than share a script
			answers = append(answers, q.ask(t.Context(), core.Charge{Policy: p, Key: q.key, Cost: 1}))
			q.until(func() bool { return q.gate.Waiting() == i+1 })
		}
		q.next()
		q.end()
		var before int64
		// Batches are in flight at the same time, and who is picked to lead one may see the next
		// leave before.
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
			q.Errorf("out of order %d times, %d admitted", breaks, admitted)
		}
	})
}

func TestWhoLeavesTheQueueIsNotCharged(t *testing.T) {
	eachStandstill(t, core.Config{}, func(q *standstill) {
		ctx, cancel := context.WithCancel(t.Context())
		leaves, stays := q.queued(ctx, 0), q.queued(t.Context(), 1)
		cancel()
		if a := <-leaves; !errors.Is(a.err, context.Canceled) {
			q.Errorf("%v", a.err)
		}
		q.end()
		if a := <-stays; !a.Allowed || a.Cause != nil {
			q.Errorf("%+v", a)
		}
		if n := q.used(); n != 1 {
			q.Errorf("%d used", n)
		}
	})
}

// pair are two who share a round trip that is held, and how each gives up.
func (q *standstill) pair() (answers [2]<-chan answer, leave [2]context.CancelFunc) {
	for i := range 2 {
		var ctx context.Context
		ctx, leave[i] = context.WithCancel(q.Context())
		answers[i] = q.queued(ctx, i)
	}
	q.next()
	return answers, leave
}

// One of two leads, and whichever gives up, the other is answered.
func TestWhoLeavesABatchHurtsNobody(t *testing.T) {
	for i := range 2 {
		eachStandstill(t, core.Config{}, func(q *standstill) {
			answers, leave := q.pair()
			leave[i]()
			q.end()
			if a := <-answers[1-i]; !a.Allowed || a.Cause != nil {
				q.Errorf("%+v", a)
			}
			if n := q.used(); n != 2 {
				q.Errorf("%d used", n)
			}
			leave[1-i]()
		})
	}
}

// Who does not lead is gone at once.
func TestWhoLeavesABatchDoesNotWait(t *testing.T) {
	eachStandstill(t, core.Config{}, func(q *standstill) {
		answers, leave := q.pair()
		leave[0]()
		leave[1]()
		select {
		case a := <-answers[0]:
			answers[0] = answers[1]
			if !errors.Is(a.err, context.Canceled) {
				q.Errorf("%+v", a)
			}
		case a := <-answers[1]:
			if !errors.Is(a.err, context.Canceled) {
				q.Errorf("%+v", a)
			}
		}
		q.end()
		<-answers[0]
		if n := q.used(); n != 2 {
			q.Errorf("%d used", n)
		}
	})
}

// A leader's deadline is not that of those who have more time.
func TestShortDeadlineEndsNobodyElse(t *testing.T) {
	eachStandstill(t, core.Config{Timeout: patient}, func(q *standstill) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		short := q.queued(ctx, 0)
		long := q.queued(t.Context(), 1)
		q.next()
		if a := <-short; a.Allowed {
			q.Errorf("%+v", a)
		}
		q.end()
		if a := <-long; !a.Allowed || a.Cause != nil {
			q.Errorf("%+v", a)
		}
	})
}

// Who came before the one that leads does not wait for as long as that one does.
func TestWhoHasLessTimeLeavesEarlier(t *testing.T) {
	const timeout = 800 * time.Millisecond
	eachStandstill(t, core.Config{Timeout: timeout}, func(q *standstill) {
		for range 5 { // on a machine that stands still, both times are over at once
			early := q.queued(t.Context(), 0)
			time.Sleep(timeout / 4) // deadlines are shared for a shorter time than that
			late := q.queued(t.Context(), 1)
			q.next()
			a := <-early
			if a.err != nil || a.Allowed || !errors.Is(a.Cause, context.DeadlineExceeded) {
				q.Fatalf("%+v", a)
			}
			ended := len(late) > 0
			if q.end(); !ended {
				return
			}
			q.fill()
		}
		q.Error("both left at once")
	})
}

// Calls that nobody answers free their places at their deadline. Each caller is answered by his own
// policy.
func TestStuckBatchesEnd(t *testing.T) {
	modes := map[core.FailureMode]core.Source{core.Open: core.SourceOpen, core.Closed: core.SourceClosed, core.Local: core.SourceLocal}
	eachStandstill(t, core.Config{Timeout: 50 * time.Millisecond}, func(q *standstill) {
		answers := make(map[core.FailureMode]<-chan answer)
		for mode := range modes {
			p := newPolicy(t, core.PolicyConfig{Name: "mode", Algorithm: frozen(10), OnFailure: mode})
			answers[mode] = q.ask(t.Context(), core.Charge{Policy: p, Key: q.key, Cost: 1})
		}
		for mode, ch := range answers {
			a := <-ch
			if a.err != nil || a.Cause == nil || a.Source != modes[mode] || a.Allowed != (mode != core.Closed) {
				q.Errorf("%v: %+v", mode, a)
			}
		}
		q.until(func() bool { // the circuit knows
			again := q.ask(t.Context(), core.Charge{Policy: q.policy, Key: newKey(t, "again"), Cost: 1})
			q.end()
			return (<-again).Cause == nil
		})
	})
}

// A connection that breaks is one failure, however many share it.
func TestBrokenBatchIsOneFailure(t *testing.T) {
	eachStandstill(t, core.Config{}, func(q *standstill) {
		var answers []<-chan answer
		for i := range 12 { // few enough for one
			answers = append(answers, q.queued(t.Context(), i))
		}
		q.next()
		q.broken.Store(true)
		q.end()
		for _, ch := range answers {
			if a := <-ch; a.err != nil || a.Allowed || a.Cause == nil || a.Source != core.SourceClosed {
				t.Errorf("%+v", a)
			}
		}
		q.broken.Store(false)
		if n := q.used(); n != 0 {
			t.Errorf("%d used", n)
		}
	})
}

// Callers who began before a period did are decided in the one that is, all at once, once it is
// known; and so are those whose clock is ahead.
func TestPeriodBeginsWhileCallersWait(t *testing.T) {
	for name, off := range map[string]time.Duration{"begun before": 400 * 24 * time.Hour, "ahead": -400 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			eachStandstill(t, core.Config{}, func(q *standstill) {
				at := time.Now().Add(off).UnixMicro()
				q.gate.InjectClock(func() int64 { return at })
				ask := func(i int) <-chan answer {
					p := limited(t, "calendar"+strconv.Itoa(i), core.Calendar{Limit: 1, Every: core.Minute, In: time.UTC})
					return q.ask(t.Context(), core.Charge{Policy: p, Key: q.key, Cost: 1})
				}
				first := ask(0)
				q.until(func() bool { return q.gate.Waiting() == 1 })
				q.end()
				if a := <-first; !a.Allowed || a.Cause != nil {
					t.Errorf("%+v", a)
				}
				q.fill()
				var answers []<-chan answer
				for i := range 12 {
					answers = append(answers, ask(1+i))
					q.until(func() bool { return q.gate.Waiting() == i+1 })
				}
				before := q.passed.Load()
				q.end()
				if n := q.passed.Load() - before; n > 4 { // one may lead himself alone
					t.Errorf("%d calls", n)
				}
				for _, ch := range answers {
					if a := <-ch; !a.Allowed || a.Cause != nil {
						t.Errorf("%+v", a)
					}
				}
			})
		})
	}
}

// Who asks for a key that is not the project's does not spoil it for those who share his script.
func TestForeignKeyHurtsNobodyElse(t *testing.T) {
	for _, value := range []string{
		"a list", "", "text", "nan", "-inf", "inf", "1e300", "12345678901234567890123", "1.5", "-5", "1 2", "1 2 3 x",
		"9999999999999999 3 7",
		"12345678901234567890123 0 1", strings.Repeat("9", 400) + " 0 1",
		"1800000000000000 0 1 0 0 12345678901234567890123 1800000000000000 0",
		strings.Repeat("            1e30", 6), // which may be taken for a log
	} {
		t.Run(value, func(t *testing.T) {
			eachStandstill(t, core.Config{}, func(q *standstill) {
				slow := core.TokenBucket{Rate: 1, Per: time.Hour, Burst: 10}
				if strings.HasSuffix(value, " 3 7") { // a state's fraction
					slow.Rate = 7
				}
				q.policy = newPolicy(q, core.PolicyConfig{Name: "p", Algorithm: slow, OnFailure: core.Closed})
				foreign := core.Charge{Policy: q.policy, Key: newKey(q, "foreign"), Cost: 1}
				if len(value) == 96 {
					log := core.SlidingLog{Windows: []core.Window{{Limit: 10, Width: time.Hour}}}
					foreign.Policy = newPolicy(q, core.PolicyConfig{Name: "log", Algorithm: log, OnFailure: core.Closed})
				}
				first := q.ask(q.Context(), foreign)
				q.until(func() bool { return q.gate.Waiting() == 1 })
				q.end()
				<-first
				q.fill()
				admin := q.server.Client(q)
				name := admin.Keys(q.Context(), q.server.Prefix+"*foreign*").Val()[0]
				if do(q, admin, "SET", name, value); value == "a list" {
					do(q, admin, "DEL", name)
					do(q, admin, "LPUSH", name, "x")
				}
				before := q.queued(q.Context(), 0)
				spoilt := q.ask(q.Context(), foreign)
				q.until(func() bool { return q.gate.Waiting() == 2 })
				after := q.queued(q.Context(), 2)
				q.end()
				if a := <-spoilt; !errors.Is(a.err, core.ErrMisconfigured) || a.Allowed {
					q.Errorf("%+v", a)
				}
				for _, ch := range []<-chan answer{before, after} {
					if a := <-ch; a.err != nil || !a.Allowed || a.Cause != nil {
						q.Errorf("%+v", a)
					}
				}
				if n := q.used(); n != 2 {
					q.Errorf("%d used", n)
				}
			})
		})
	}
}

// A cluster that accepts connections and says nothing keeps no decision beyond its time.
func TestClusterThatNeverAnswers(t *testing.T) {
	for _, inline := range []bool{false, true} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
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
		_ = l.Close() // which ends what the client still waits for
		mute.Wait()
		_ = client.Close()
	}
}
