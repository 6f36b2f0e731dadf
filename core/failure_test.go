package core_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// shortTimeout is a Config.Timeout for decisions that are expected to exceed it.
const shortTimeout = 100 * time.Millisecond

var modes = []struct {
	name    string
	mode    core.FailureMode
	source  core.Source
	allowed bool
}{
	{"local", core.FailLocal, core.SourceLocal, true},
	{"open", core.FailOpen, core.SourceOpen, true},
	{"closed", core.FailClosed, core.SourceClosed, false},
}

// warm fills the client's pool with connections. With an empty pool a repeated command would die
// while it connects, and the test would not see it.
func warm(t *testing.T, client *redis.Client) {
	t.Helper()
	for range 4 {
		conn := client.Conn() // each call keeps its connection until warm returns
		defer conn.Close()
		worked(t, conn.Ping(context.Background()).Err())
	}
}

// whileStopped decides while the server is stopped. The deadline held if it returns before the
// server continues.
func whileStopped(t *testing.T, s *redistest.Server, g *core.Gate, charges ...core.Charge) (d core.Decision, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		d, err = g.Decide(context.Background(), charges...)
	}()
	select {
	case <-done:
	case <-time.After(longTimeout):
		t.Error("the decision waits for the stopped server")
		s.Continue()
		<-done
	}
	return d, err
}

func TestFailureModesOnStoppedServer(t *testing.T) {
	t.Parallel()
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			for name, change := range map[string]func(o *redis.Options){
				// Left alone, these two clients wait for an answer for ever.
				"default client":        func(o *redis.Options) { o.ReadTimeout, o.ContextTimeoutEnabled = -1, false },
				"ContextTimeoutEnabled": func(o *redis.Options) { o.ReadTimeout = -1 },
				// Left alone, this client sends an unanswered command again, well within the
				// decision's deadline.
				"short ReadTimeout": func(o *redis.Options) { o.ReadTimeout, o.ContextTimeoutEnabled = shortTimeout, false },
			} {
				t.Run(name, func(t *testing.T) {
					s := redistest.Start(t)
					client := s.Client(t, change)
					timeout := 3 * shortTimeout
					if name == "short ReadTimeout" {
						timeout = 20 * shortTimeout
					}
					g := redisGate(t, client, core.Config{Timeout: timeout})
					p := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(10), OnFailure: m.mode})
					c := core.Charge{Policy: p, Key: newKey(t, "k"), Cost: 1}
					gatetest.ViaRedis(t, g, c)
					patient := redisGate(t, s.Client(t), core.Config{})
					decide(t, patient, c)
					warm(t, client)
					if stats := client.PoolStats(); stats.IdleConns < 2 {
						t.Fatalf("%d idle connections", stats.IdleConns)
					}

					s.Stop()
					d, err := whileStopped(t, s, g, c)
					if err != nil || d.Cause == nil || d.Source != m.source || d.Allowed != m.allowed {
						t.Errorf("%s from %v: %v, %v", show(d), d.Source, d.Cause, err)
					}
					if r := d.At(0); r.Known != (m.mode == core.FailLocal) || r.Limit != 10 || r.Violates(0) == r.Allowed {
						t.Errorf("%+v", r)
					}
					if wait := d.RetryAfter(); wait == core.Never || (wait > 0) == m.allowed {
						t.Errorf("wait %v", wait)
					}
					s.Continue()

					gatetest.ViaRedis(t, g, c)
					if d := peek(t, patient, c); d.At(0).Used > 2 {
						t.Errorf("the charge was spent more than once: %s", show(d))
					}
				})
			}
		})
	}
}

// A caller with a nearer deadline than the Gate's gets the answer of its policies' modes within it.
// A very near deadline says nothing about Redis, and ends no other caller's call.
func TestDecisionEndsAtCallersDeadline(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	g := redisGate(t, client, core.Config{})
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(100), OnFailure: core.FailOpen}), Key: newKey(t, "k"), Cost: 1}
	decide(t, g, c)
	warm(t, client)
	s.Stop()
	for range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		d, err := g.Decide(ctx, c)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			continue // a slow machine left no time to decide
		}
		if err != nil || !d.Allowed || d.Cause == nil || d.Source != core.SourceOpen || errors.Is(d.Cause, core.ErrCircuitOpen) {
			t.Errorf("%v, allowed %v, cause %v", err, d.Allowed, d.Cause)
		}
	}
	s.Continue()
	decide(t, g, c)
}

// Callers that have nearly the Gate's timeout left open the circuit when Redis is dead. Those whose
// deadlines are far nearer get errors until a probe has found that.
func TestCallersDeadlinesOpenTheCircuit(t *testing.T) {
	t.Parallel()
	for name, deadline := range map[string]time.Duration{"near": shortTimeout * 7 / 4, "far nearer": shortTimeout / 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(t)
			g := redisGate(t, client, core.Config{Timeout: 2 * shortTimeout})
			c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(100), OnFailure: core.FailOpen}), Key: newKey(t, "k"), Cost: 1}
			gatetest.ViaRedis(t, g, c)
			warm(t, client)
			s.Stop()
			for opened := false; !opened; {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				d, err := g.Decide(ctx, c)
				cancel()
				opened = errors.Is(d.Cause, core.ErrCircuitOpen) && d.Allowed
				if err != nil && !errors.Is(err, context.DeadlineExceeded) || err == nil && name == "far nearer" && !opened {
					t.Fatal(show(d), err)
				}
			}
			s.Continue()
			gatetest.ViaRedis(t, g, c)
		})
	}
}

// A Redis that answers PING but does not write is down.
func TestPausedWritesAreAnOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client, admin := s.Client(t), s.Client(t)
	g := redisGate(t, client, core.Config{Timeout: shortTimeout})
	c := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(100), OnFailure: core.FailOpen}), Key: newKey(t, "k"), Cost: 1}
	gatetest.ViaRedis(t, g, c)
	noError(t, admin.Do(t.Context(), "CLIENT", "PAUSE", 600_000, "WRITE").Err())
	waited := 0
	for range 2000 {
		d := gatetest.Must(g.Decide(t.Context(), c))(t)
		gatetest.Need(t, d.Source, core.SourceOpen, "got")
		if !errors.Is(d.Cause, core.ErrCircuitOpen) {
			waited++
		}
	}
	if waited > 6 { // until a probe has waited for its own time
		t.Errorf("%d decisions waited for Redis", waited)
	}
	noError(t, admin.Do(t.Context(), "CLIENT", "UNPAUSE").Err())
	gatetest.ViaRedis(t, g, c)
}

func TestFailureModesOnKilledServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	g := redisGate(t, client, core.Config{Timeout: time.Second, Replicas: 4})
	key := newKey(t, "k")
	local := core.Charge{Policy: limited(t, "local", frozen(10)), Key: key, Cost: 1}
	open := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "open", Algorithm: frozen(10), OnFailure: core.FailOpen}), Key: key, Cost: 1}
	closed := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "closed", Algorithm: frozen(10), OnFailure: core.FailClosed}), Key: key, Cost: 1}
	shadow := core.Charge{Policy: newPolicy(t, core.PolicyConfig{Name: "shadow", Algorithm: frozen(10), OnFailure: core.FailClosed, Shadow: true}), Key: key, Cost: 1}
	full := core.Charge{Policy: limited(t, "full", frozen(1)), Key: key, Cost: 1}
	decide(t, g, full)

	// Redis's denials hold in every failure mode.
	open2 := core.Charge{Policy: open.Policy, Key: key, Cost: 11}
	for _, c := range []core.Charge{full, open2} {
		if d := decide(t, g, c); d.Allowed || d.Source != core.SourceRedis {
			t.Errorf("%s from %v", show(d), d.Source)
		}
	}

	s.Kill()
	failed := func(want core.Source, allowed bool, charges ...core.Charge) core.Decision {
		t.Helper()
		d, err := g.Decide(t.Context(), charges...)
		if err != nil || d.Cause == nil || d.Source != want || d.Allowed != allowed {
			t.Errorf("%s from %v: %v, %v; want %v from %v", show(d), d.Source, d.Cause, err, allowed, want)
		}
		return d
	}
	failed(core.SourceOpen, true, open)
	failed(core.SourceOpen, true, shadow)
	failed(core.SourceClosed, false, closed)
	// Beside a Closed policy nothing is spent locally, in whatever order.
	failed(core.SourceClosed, false, closed, local, open)
	failed(core.SourceClosed, false, local, open, closed)
	// Each of 4 replicas has a share of 2 of the limit of 10. The Open policy abstains.
	d := failed(core.SourceLocal, true, open, local, shadow)
	if r := d.At(1); r.Used != 1 || r.Limit != 2 {
		t.Errorf("local share: %+v", r)
	}
	failed(core.SourceLocal, true, local)
	d = failed(core.SourceLocal, false, open, local)
	// Waiting does not refill the share, but Redis may be back.
	if wait := d.RetryAfter(); wait != time.Second || !d.At(0).Allowed || d.At(1).Allowed {
		t.Errorf("beyond the local share: %s", show(d))
	}
	// The Local policies decide all or nothing.
	other := core.Charge{Policy: limited(t, "other", frozen(10)), Key: key, Cost: 1}
	if d = failed(core.SourceLocal, false, other, local); d.At(0).Used != 0 {
		t.Errorf("a local denial spent: %s", show(d))
	}
	other.Cost = 9
	n, d, err := atMost(g, t.Context(), other)
	if n != 2 || err != nil || !d.Allowed || d.Source != core.SourceLocal {
		t.Errorf("SpendUpTo granted %d: %s, %v", n, show(d), err)
	}
	p, err := g.Peek(t.Context(), local)
	if err != nil || p.Allowed || p.Source != core.SourceLocal {
		t.Errorf("%s from %v, %v", show(p), p.Source, err)
	}
	if err := g.Reset(t.Context(), core.Charge{Policy: local.Policy, Key: key}); err == nil {
		t.Error("Reset without Redis returned no error")
	}
	failed(core.SourceLocal, true, local) // the local share was reset

	s.Restart()
	gatetest.ViaRedis(t, g, local)
	if d := decide(t, g, local); d.At(0).Used != 1 || d.At(0).Limit != 10 {
		t.Errorf("local charges reached Redis: %s", show(d))
	}
	worked(t, g.Close(t.Context()))
}

// Close during an outage waits for the calls that still run in the background.
func TestCloseDuringOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout})
	c := core.Charge{Policy: limited(t, "p", frozen(1_000_000)), Key: newKey(t, "k"), Cost: 1}
	gatetest.ViaRedis(t, g, c)
	s.Stop()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				if _, err := g.Decide(context.Background(), c); errors.Is(err, core.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for {
		d := gatetest.Must(g.Decide(t.Context(), c))(t)
		if errors.Is(d.Cause, core.ErrCircuitOpen) {
			break
		}
	}
	worked(t, g.Close(t.Context()))
	wg.Wait()
}

// answering starts a proxy that gives one answer to every command, and returns its address.
func answering(t *testing.T, answer string) string {
	t.Helper()
	l := gatetest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() {
				defer context.AfterFunc(t.Context(), func() { c.Close() })()
				defer c.Close()
				for r := bufio.NewReader(c); readCommand(r) == nil; {
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(tasks.Wait)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// readCommand reads one command of a client.
func readCommand(r *bufio.Reader) error {
	length := func(kind string) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), kind))
	}
	words, err := length("*")
	for range words {
		n, e := length("$")
		if e != nil {
			return e
		}
		if _, err := r.Discard(n + 2); err != nil {
			return err
		}
	}
	return err
}

// What a proxy answers for a dead Redis is an outage, and so is nonsense: the failure modes decide,
// and the circuit opens.
func TestProxyAnswersForDeadRedis(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"Envoy, no answer":       "-upstream failure\r\n",
		"Envoy, no host":         "-no upstream host\r\n",
		"twemproxy, refused":     "-ERR Connection refused\r\n",
		"twemproxy, timeout":     "-ERR Connection timed out\r\n",
		"an error without words": "-\r\n",
		"another status":         "+OK\r\n",
		"a number":               ":7\r\n",
		"nothing":                "$-1\r\n",
		"an empty list":          "*0\r\n",
		"a short list":           "*1\r\n:7\r\n",
		"a list of texts":        "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
		"a page":                 "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClient(&redis.Options{
				Addr: answering(t, answer), ContextTimeoutEnabled: true, DialerRetries: 1,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
			})
			t.Cleanup(func() { client.Close() })
			opened := make(chan struct{}, 1)
			g := redisGate(t, client, core.Config{Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
				if isOp(e, core.OpCircuitOpened) {
					select {
					case opened <- struct{}{}:
					default:
					}
				}
			}})
			check := func(when string) {
				for _, m := range modes {
					p := newPolicy(t, core.PolicyConfig{Name: m.name, Algorithm: frozen(5), OnFailure: m.mode})
					for _, n := range []int{1, 2} { // alone, and with a second charge
						charges := []core.Charge{{Policy: p, Key: newKey(t, fmt.Sprint("k", n)), Cost: 1}}
						if n == 2 {
							other := newPolicy(t, core.PolicyConfig{Name: m.name + "2", Algorithm: frozen(5), OnFailure: m.mode})
							charges = append(charges, core.Charge{Policy: other, Key: charges[0].Key, Cost: 1})
						}
						d, err := g.Decide(t.Context(), charges...)
						if err != nil || d.Allowed != m.allowed || d.Source != m.source || d.Cause == nil ||
							errors.Is(d.Cause, core.ErrMisconfigured) {
							t.Errorf("%s, %s, %d charges: %s, %v", when, m.name, n, show(d), err)
						}
					}
				}
			}
			check("at first")
			for open := false; !open; {
				select {
				case <-opened:
					open = true
				case <-time.After(10 * time.Millisecond): // a busy process takes the failures for overload
					check("until the circuit opens")
				}
			}
			check("later")
			if err := g.Ping(t.Context()); err == nil || errors.Is(err, core.ErrMisconfigured) {
				t.Errorf("Ping: %v", err)
			}
			for _, m := range modes {
				sem := newSemaphore(t, g, semaphore.Config{Name: m.name, OnFailure: m.mode})
				l, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}})
				if (err == nil) != m.allowed || errors.Is(err, core.ErrMisconfigured) {
					t.Errorf("a slot, %s: %v", m.name, err)
				}
				if l != nil && m.mode == core.FailLocal {
					_ = l.Release(t.Context())
				}
			}
		})
	}
}
