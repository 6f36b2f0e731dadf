package once_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

func newOnce(t testing.TB, g *core.Gate, cfg once.Config) *once.Once {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "events"
	}
	if cfg.Window == 0 {
		cfg.Window = time.Hour
	}
	return gatetest.Must(once.New(g, cfg))(t)
}

// eachGate runs f on a Gate in memory, with its clock, and on one on every Redis, without one.
func eachGate(t *testing.T, f func(t *testing.T, g *core.Gate, c *core.ManualClock)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		c := core.NewManualClock(time.Now())
		f(t, memoryGate(t, core.Config{Clock: c.Now}), c)
	})
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		f(t, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix}), nil)
	})
}

func TestWorkIsDoneOnce(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, c *core.ManualClock) {
		ctx := t.Context()
		o, key := newOnce(t, g, once.Config{}), newKey(t, "evt_1")
		calls := 0
		do := func(result error) error {
			return o.Do(ctx, key, 0, func(ctx context.Context) error {
				calls++
				if _, err := o.Begin(ctx, key, 0); !errors.Is(err, semaphore.ErrFull) {
					t.Errorf("a second attempt beside the first: %v", err)
				}
				return result
			})
		}
		failure := errors.New("failed")
		gatetest.Is(t, do(failure), failure, "work that fails")
		if err := do(nil); err != nil {
			t.Errorf("after a failure: %v", err)
		}
		if err := do(nil); !errors.Is(err, once.ErrDone) || calls != 2 {
			t.Errorf("after a success: %v, %d calls", err, calls)
		}
		gatetest.Is(t, gatetest.Err(o.Begin(ctx, key, time.Minute)), once.ErrDone, "waiting after a success")
		if c != nil {
			c.Advance(time.Hour - time.Microsecond)
			gatetest.Is(t, do(nil), once.ErrDone, "at the end of the window")
			c.Advance(time.Microsecond)
			if err := do(nil); err != nil {
				t.Errorf("after the window: %v", err)
			}
		}
		noError(t, o.Forget(ctx, key))
		if err := do(nil); err != nil {
			t.Errorf("after Forget: %v", err)
		}
		if a := (*once.Attempt)(nil); a.Fail(ctx) != nil || a.Succeed(ctx) != nil || a.Context() == nil {
			t.Error("a nil Attempt")
		}
	})
}

// Redis forgets a key after the window.
func TestWindowEnds(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		ctx := t.Context()
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		o, key := newOnce(t, g, once.Config{Window: 100 * time.Millisecond}), newKey(t, "k")
		work := func(context.Context) error { return nil }
		noError(t, o.Do(ctx, key, 0, work))
		eventually(t, "the key is forgotten", func() bool {
			err := o.Do(ctx, key, 0, work)
			if err != nil && !errors.Is(err, once.ErrDone) {
				t.Fatal(err)
			}
			return err == nil
		})
	})
}

func TestOnceFaults(t *testing.T) {
	_, err := once.New(nil, once.Config{Name: "a b", TTL: time.Millisecond})
	for _, want := range []string{
		"Gate is missing", `"a b"`, "Config.TTL is 1ms", "Config.Window is 0s",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if _, err := newOnce(t, memoryGate(t, core.Config{}), once.Config{}).Begin(t.Context(), core.Key{}, 0); !errors.Is(err, core.ErrKey) {
		t.Errorf("no key: %v", err)
	}
}

// Callers that wait go on if the first one fails, and hear that it is done if it succeeds.
func TestOnceWaits(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		ctx := t.Context()
		client := s.Client(t)
		o := newOnce(t, redisGate(t, client, core.Config{Prefix: s.Prefix}), once.Config{})
		for i, end := range []func(*once.Attempt) error{
			func(a *once.Attempt) error { return a.Fail(ctx) },
			func(a *once.Attempt) error { return a.Succeed(ctx) },
		} {
			key := newKey(t, fmt.Sprint("k", i))
			first := gatetest.Must(o.Begin(ctx, key, 0))(t)
			if _, err := o.Begin(ctx, key, time.Millisecond); !errors.Is(err, semaphore.ErrFull) {
				t.Errorf("a wait that is too short: %v", err)
			}
			type outcome struct {
				a   *once.Attempt
				err error
			}
			second := make(chan outcome)
			go func() {
				a, err := o.Begin(ctx, key, time.Minute)
				second <- outcome{a, err}
			}()
			eventually(t, "the second caller listens", func() bool {
				return len(client.PubSubChannels(ctx, "*").Val()) > 0
			})
			noError(t, end(first))
			got := <-second
			if i == 0 && got.err != nil || i == 1 && !errors.Is(got.err, once.ErrDone) {
				t.Errorf("end %d: %v", i, got.err)
			}
			worked(t, got.a.Fail(ctx))
		}
	})
}

// Each of 1,000 ids comes 10 times at once to two replicas, and is handled once. One in ten fails at
// first.
func TestOnceOverReplicas(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var replicas []*once.Once
	for range 2 {
		g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
		replicas = append(replicas, newOnce(t, g, once.Config{}))
	}
	ctx := t.Context()
	const ids = 1000
	var handled, tried [ids]atomic.Int64
	var wg sync.WaitGroup
	slots := make(chan struct{}, 100)
	for i := range ids {
		key := newKey(t, fmt.Sprint("evt_", i))
		for n := range 10 {
			slots <- struct{}{}
			wg.Go(func() {
				defer func() { <-slots }()
				err := replicas[n%2].Do(ctx, key, time.Minute, func(context.Context) error {
					if tried[i].Add(1) == 1 && i%10 == 0 {
						return errors.New("failed")
					}
					handled[i].Add(1)
					return nil
				})
				if err != nil && !errors.Is(err, once.ErrDone) && err.Error() != "failed" {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	for i := range ids {
		gatetest.Equal(t, handled[i].Load(), 1, "runs of id %d", i)
	}
}

// What succeeded during an outage is remembered when Redis is back, and stays taken until then.
func TestOnceSurvivesOutage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	o := newOnce(t, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix, Timeout: busyTimeout}), once.Config{TTL: time.Minute})
	key := newKey(t, "k")
	a := gatetest.Must(o.Begin(ctx, key, 0))(t)
	s.Stop()
	gatetest.Is(t, a.Succeed(ctx), once.ErrNotRecorded, "a stopped Redis has remembered")
	if _, err := o.Begin(ctx, newKey(t, "other"), 0); err == nil || errors.Is(err, once.ErrDone) || errors.Is(err, semaphore.ErrFull) {
		t.Errorf("another key during the outage: %v", err)
	}
	s.Continue()
	eventually(t, "the success is remembered", func() bool {
		_, err := o.Begin(ctx, key, 0)
		if err == nil {
			t.Fatal("the key could be taken again")
		}
		return errors.Is(err, once.ErrDone)
	})
}

// A panic in a hook of the client is a failure to record, which is tried again.
func TestOnceSurvivesPanics(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	client := s.Client(t)
	var panics atomic.Int32 // left
	client.AddHook(gatetest.OnScripts(func(_ context.Context, _ []redis.Cmder, send func() error) error {
		if panics.Add(-1) >= 0 {
			panic("hook")
		}
		return send()
	}))
	o, key := newOnce(t, redisGate(t, client, core.Config{}), once.Config{TTL: time.Minute}), newKey(t, "k")
	err := o.Do(ctx, key, 0, func(context.Context) error {
		panics.Store(2) // Succeed, and the first attempt in the background
		return nil
	})
	gatetest.Is(t, err, once.ErrNotRecorded, "Do")
	eventually(t, "the success is remembered", func() bool {
		return panics.Load() < 0 && errors.Is(gatetest.Err(o.Begin(ctx, key, 0)), once.ErrDone)
	})
}

// A caller whose lease is lost while it works hears of it, and the key is remembered.
func TestOnceLosesLease(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	client := s.Client(t)
	g := redisGate(t, client, core.Config{Prefix: s.Prefix})
	o, key := newOnce(t, g, once.Config{TTL: time.Second}), newKey(t, "k")
	err := o.Do(ctx, key, 0, func(ctx context.Context) error {
		worked(t, client.FlushAll(context.WithoutCancel(ctx)).Err())
		<-ctx.Done()
		return nil
	})
	gatetest.Is(t, err, semaphore.ErrLeaseLost, "Do")
	gatetest.Is(t, gatetest.Err(o.Begin(ctx, key, 0)), once.ErrDone, "afterwards")
}

// A Once is beside a semaphore and a Block of its name.
func TestOnceSharesNoName(t *testing.T) {
	t.Parallel()
	eachGate(t, func(t *testing.T, g *core.Gate, _ *core.ManualClock) {
		ctx, key := t.Context(), newKey(t, "k")
		sem := gatetest.Must(semaphore.New(g, semaphore.Config{Name: "events"}))(t)
		held := gatetest.Must(sem.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}))(t)
		defer func() { _ = held.Release(ctx) }()
		block := limited(t, "events", core.Block{Strikes: 1, Within: time.Hour, For: time.Hour})
		decide(t, g, core.Charge{Policy: block, Key: key, Cost: 1})
		a := gatetest.Must(newOnce(t, g, once.Config{Name: "events"}).Begin(ctx, key, 0))(t)
		worked(t, a.Fail(ctx))
	})
}

// A holder that finishes while its Gate closes is remembered.
func TestOnceDuringClose(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix})
	o, key := newOnce(t, g, once.Config{}), newKey(t, "k")
	a := gatetest.Must(o.Begin(ctx, key, 0))(t)
	closed := make(chan error)
	go func() { closed <- g.Close(ctx) }()
	for {
		if _, err := o.Begin(ctx, key, 0); errors.Is(err, core.ErrClosed) {
			break
		}
	}
	worked(t, a.Succeed(ctx))
	worked(t, <-closed)
	next := newOnce(t, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix}), once.Config{})
	gatetest.Is(t, gatetest.Err(next.Begin(ctx, key, 0)), once.ErrDone, "after the Gate was closed")
}

// A caller whose context has ended before learns all the same that its lease was lost.
func TestOnceLosesLeaseAfterItsContext(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	o, key := newOnce(t, redisGate(t, client, core.Config{}), once.Config{TTL: time.Second}), newKey(t, "k")
	ctx, cancel := context.WithCancel(t.Context())
	a := gatetest.Must(o.Begin(ctx, key, 0))(t)
	cancel()
	<-a.Context().Done()
	noError(t, client.FlushAll(t.Context()).Err())
	<-a.Lost()
	gatetest.Is(t, a.Succeed(t.Context()), semaphore.ErrLeaseLost, "got")
}

// The key of a process that is killed is free when its lease has ended.
func TestOnceAfterKill(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	_, lines, killed := redistest.StartKillable(t, "TestOnceWorker", "ONCE_TEST_ADDR="+s.Addr, "ONCE_TEST_PREFIX="+s.Prefix)
	for lines.Scan() && lines.Text() != "begun" {
	}
	o, key := newOnce(t, redisGate(t, s.Client(t), core.Config{Prefix: s.Prefix}), once.Config{TTL: time.Second}), newKey(t, "k")
	if _, err := o.Begin(t.Context(), key, 0); !errors.Is(err, semaphore.ErrFull) {
		t.Fatalf("while the process works: %v", err)
	}
	killed()
	a, err := o.Begin(t.Context(), key, time.Minute)
	if err != nil {
		t.Fatalf("after it was killed: %v", err)
	}
	worked(t, a.Succeed(t.Context()))
}

// TestOnceWorker is the body of the process of TestOnceAfterKill.
func TestOnceWorker(t *testing.T) {
	addr := os.Getenv("ONCE_TEST_ADDR")
	if addr == "" {
		t.Skip("runs only as a process of TestOnceAfterKill")
	}
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	g := redisGate(t, client, core.Config{Prefix: os.Getenv("ONCE_TEST_PREFIX")})
	gatetest.Must(newOnce(t, g, once.Config{TTL: time.Second}).Begin(context.Background(), newKey(t, "k"), 0))(t)
	fmt.Println("begun")
	select {}
}

// An answer is kept in the step that marks the key done, and as long: not without that, not of a caller
// whose lease was lost, and not after Forget.
func TestOnceKeepsAnswers(t *testing.T) {
	t.Parallel()
	gatetest.Each(t, func(t *testing.T, gate *core.Gate, clock *core.ManualClock) {
		o := core.Must(once.New(gate, once.Config{Name: "work", Window: time.Hour}))
		ctx := t.Context()
		key := newKey(t, "k", "x:y")
		expect := func(want string) {
			t.Helper()
			got := gatetest.Must(o.Answer(ctx, key))(t)
			gatetest.Equal(t, string(got), want, "got")
		}
		begin := func() *once.Attempt {
			t.Helper()
			return gatetest.Must(o.Begin(ctx, key, 0))(t)
		}
		expect("")
		worked(t, begin().Fail(ctx))
		expect("")
		first := "a\x00\xff\r\n" + strings.Repeat("b", 100_000)
		worked(t, begin().SucceedWith(ctx, []byte(first)))
		expect(first)
		gatetest.Is(t, gatetest.Err(o.Begin(ctx, key, 0)), once.ErrDone, "got")
		worked(t, o.Forget(ctx, key))
		expect("")
		if strings.HasSuffix(t.Name(), "/memory") { // others go by the server's clock
			worked(t, begin().SucceedWith(ctx, []byte("second")))
			expect("second")
			clock.Advance(time.Hour)
			expect("")
		}
		brief := core.Must(once.New(gate, once.Config{Name: "brief", Window: 500 * time.Microsecond}))
		worked(t, gatetest.Must(brief.Begin(ctx, key, 0))(t).SucceedWith(ctx, []byte("brief")))
	})
}

// A long answer that Redis did not take is not sent again: the key is recorded without it.
func TestLongAnswerIsSentOnce(t *testing.T) {
	t.Parallel()
	for size, again := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		s := redistest.Start(t)
		client := s.Client(t)
		var sent atomic.Int64
		answer := strings.Repeat("a", size)
		client.AddHook(gatetest.OnScripts(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
			if !strings.Contains(fmt.Sprintf("%s", cmds[0].Args()), answer) {
				return send()
			}
			if sent.Add(1) == 1 {
				return io.ErrUnexpectedEOF
			}
			return send()
		}))
		ctx, key := t.Context(), newKey(t, "k")
		o := newOnce(t, redisGate(t, client, core.Config{Timeout: busyTimeout}), once.Config{Name: "w", TTL: time.Minute})
		a := gatetest.Must(o.Begin(ctx, key, 0))(t)
		gatetest.Is(t, a.SucceedWith(ctx, []byte(answer)), once.ErrNotRecorded, "recorded")
		eventually(t, "the key is done", func() bool { return errors.Is(gatetest.Err(o.Begin(ctx, key, 0)), once.ErrDone) })
		kept := gatetest.Must(o.Answer(ctx, key))(t)
		gatetest.Equal(t, sent.Load() > 1, again, "an answer of %d bytes is sent again", size)
		gatetest.Equal(t, len(kept) > 0, again, "an answer of %d bytes is kept", size)
	}
}

// What a caller writes into the bytes that it has given or got changes no answer, also if that is sent
// after SucceedWith has returned.
func TestAnswersAreCopies(t *testing.T) {
	t.Parallel()
	use := func(t *testing.T, o *once.Once, begun func(), succeeded func(error)) {
		ctx, key := t.Context(), newKey(t, "k")
		a, err := o.Begin(ctx, key, 0)
		noError(t, err)
		begun()
		given := []byte("first")
		succeeded(a.SucceedWith(ctx, given))
		copy(given, "XXXXX")
		var got []byte
		eventually(t, "the answer is recorded", func() bool {
			got, _ = o.Answer(ctx, key)
			return len(got) > 0
		})
		gatetest.Equal(t, string(got), "first", "recorded %q", got)
		copy(got, "YYYYY")
		if again, _ := o.Answer(ctx, key); string(again) != "first" {
			t.Errorf("after a reader wrote into it: %q", again)
		}
		gatetest.Is(t, gatetest.Err(o.Answer(ctx, core.Key{})), core.ErrKey, "of no key")
	}
	t.Run("in memory", func(t *testing.T) {
		t.Parallel()
		o := newOnce(t, core.Must(core.NewMemory(core.Config{})), once.Config{Name: "w"})
		use(t, o, func() {}, func(err error) { noError(t, err) })
	})
	t.Run("sent later", func(t *testing.T) {
		t.Parallel()
		s := redistest.Start(t)
		memory := func(most string) { noError(t, s.Client(t).ConfigSet(t.Context(), "maxmemory", most).Err()) }
		o := newOnce(t, redisGate(t, s.Client(t), core.Config{Timeout: busyTimeout}), once.Config{Name: "w", TTL: time.Minute})
		use(t, o, func() { memory("1") }, func(err error) {
			gatetest.Is(t, err, once.ErrNotRecorded, "recorded")
			memory("0")
		})
	})
}
