package semaphore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/request"
)

// lossyConn drops published messages while dropping is set, and counts them.
type lossyConn struct {
	net.Conn
	dropping *atomic.Bool
	dropped  *atomic.Int64
}

func (c lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.dropping.Load() || !bytes.Contains(b[:n], []byte("\r\nmessage\r\n")) {
			return n, err
		}
		c.dropped.Add(1)
	}
}

// waitSubscribed returns once a client is subscribed.
func waitSubscribed(t *testing.T, s *redistest.Server) {
	t.Helper()
	waitSubscriptions(t, s, true)
}

// waitSubscriptions returns once there are subscriptions, or none.
func waitSubscriptions(t *testing.T, s *redistest.Server, some bool) {
	t.Helper()
	client := s.Client(t)
	eventually(t, "subscriptions begin or end", func() bool {
		return len(client.PubSubChannels(t.Context(), "*").Val()) > 0 == some
	})
}

// A lost message costs the time until the waiter polls.
func TestWaiterPollsAfterLostMessage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	var dropping atomic.Bool
	var dropped atomic.Int64
	client := s.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return lossyConn{conn, &dropping, &dropped}, err
		}
	})
	// With the long lease, a waiter that gets the slot without notice must poll before its
	// unconfirmed grant expires.
	for name, lease := range map[string]time.Duration{"short": time.Second, "long": time.Hour} {
		t.Run(name, func(t *testing.T) {
			dropping.Store(false)
			dropped.Store(0)
			g := redisGate(t, client, core.Config{Prefix: s.Prefix})
			sem := newSemaphore(t, g, semaphore.Config{TTL: lease})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			first := acquire(t, sem, level)
			second := enqueue(t, sem, level)
			waitSubscribed(t, s)
			dropping.Store(true)
			release(t, first)
			l := <-second
			// It may have asked for another reason, before the message came.
			eventually(t, "a message is lost", func() bool { return dropped.Load() > 0 })
			release(t, l)
			worked(t, g.Close(t.Context()))
			waitSubscriptions(t, s, false) // the server may learn of the end later
		})
	}
}

// A client that may neither publish nor subscribe polls for its slot, and so does one of a proxy that
// knows no messages.
func TestWaiterPollsWithoutPubSub(t *testing.T) {
	t.Parallel()
	unknown := []string{}
	for _, name := range []string{"SUBSCRIBE", "PSUBSCRIBE", "PUBLISH", "HELLO", "CLIENT"} {
		unknown = append(unknown, "--rename-command", name, "")
	}
	for name, tt := range map[string]struct {
		args  []string
		rules []any
	}{
		"not permitted": {nil, []any{"resetchannels", "+@all", "-@pubsub"}},
		"unknown":       {unknown, []any{"&*", "+@all", "-info", "-cluster", "-command"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t, tt.args...)
			do(t, s.Client(t), append([]any{"ACL", "SETUSER", "deaf", "on", ">secret", "~*"}, tt.rules...)...)
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })
			g := redisGate(t, client, core.Config{})
			worked(t, g.Ping(t.Context()))
			sem := newSemaphore(t, g, semaphore.Config{TTL: time.Second})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			first := acquire(t, sem, level)
			second := enqueue(t, sem, level)
			third := enqueue(t, sem, level)
			release(t, first)
			release(t, <-second)
			release(t, <-third)
			worked(t, g.Close(t.Context()))
			for _, key := range redistest.Keys(t, s.Client(t), "*") {
				if !strings.Contains(key, "{ping}") && !strings.Contains(key, "{pong}") {
					t.Errorf("%s remains", key)
				}
			}
		})
	}
}

// A lease that cannot be renewed is lost when its TTL is over, even while the renewing call hangs.
func TestLeaseIsLostWhileRedisIsStopped(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t, func(o *redis.Options) { o.ReadTimeout = -1 })
	g := redisGate(t, client, core.Config{Timeout: time.Minute})
	t.Cleanup(func() { _ = g.Close(context.Background()) })
	l := acquire(t, newSemaphore(t, g, semaphore.Config{TTL: time.Second}), semaphore.Cap{Key: newKey(t, "k"), Limit: 1})
	s.Stop()
	t.Cleanup(s.Continue)
	select {
	case <-l.Context().Done():
		gatetest.Is(t, context.Cause(l.Context()), semaphore.ErrLeaseLost, "got")
	case <-time.After(longTimeout):
		t.Error("the lease is not lost")
	}
}

// When a replica takes over, the leases that it has continue. When they are released, the next
// waiter gets the slot.
func TestLeasesSurviveFailover(t *testing.T) {
	t.Parallel()
	f := redistest.StartFailover(t, 1)
	client := f.Client(t, func(o *redis.FailoverOptions) { o.DialerRetries = 1 })
	g := redisGate(t, client, core.Config{Timeout: time.Second})
	// Sentinels whose votes split hold another election after some seconds, and that several times.
	sem := newSemaphore(t, g, semaphore.Config{TTL: 3 * time.Minute, OnFailure: core.FailClosed})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	first := acquire(t, sem, level)
	f.Replicated(t)
	f.Nodes[0].Kill()
	before := first.Until()
	for answers := false; !answers || !first.Until().After(before); { // until a renewal
		if err := first.Context().Err(); err != nil {
			t.Fatal(context.Cause(first.Context()))
		}
		_, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}})
		answers = errors.Is(err, semaphore.ErrFull)
	}
	second := enqueue(t, sem, level)
	release(t, first)
	l := <-second
	if l.Token() <= first.Token() {
		t.Errorf("token %d after %d", l.Token(), first.Token())
	}
	release(t, l)
	worked(t, g.Close(t.Context()))
	keys := redistest.Keys(t, client, "*")
	// The probe belongs to the circuit.
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, ":ping"+request.BundleSuffix) })
	if len(keys) > 0 {
		t.Errorf("keys remain: %v", keys)
	}
}

// A server that has forgotten the leases of a process has them again long before they are due.
func TestForgottenLeasesAreRenewedAtOnce(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout})
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnLoss: semaphore.LossAdopt})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	l := acquire(t, sem, level)
	<-time.After(1100 * time.Millisecond) // what was confirmed within a second is not renewed
	s.Restart()
	eventually(t, "the slot is held", func() bool {
		_, _ = g.Decide(t.Context(), core.Charge{Policy: limited(t, "p", frozen(1)), Key: level.Key, Cost: core.NoCost})
		all, _, err := sem.Holders(t.Context(), level.Key)
		return err == nil && len(all) == 1
	})
	release(t, l)
}

// When a server begins again and is empty, holders take their slots again before anybody who waits for
// one gets it, in whatever process.
func TestHoldersComeFirstAtAnEmptyServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	var sems []*semaphore.Semaphore
	for range 2 {
		g := redisGate(t, s.Client(t), core.Config{})
		sems = append(sems, newSemaphore(t, g, semaphore.Config{
			TTL: time.Hour, OnLoss: semaphore.LossAdopt, OnFailure: core.FailClosed,
		}))
	}
	l := acquire(t, sems[0], level)
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan *semaphore.Lease, len(sems))
	for _, sem := range sems {
		queued := make(chan struct{}, 100)
		go func() {
			l, _ := sem.Acquire(ctx, semaphore.Request{ // it fails if the server is late
				Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { queued <- struct{}{} },
			})
			waited <- l
		}()
		<-queued
	}
	eventually(t, "both listen", func() bool {
		return len(s.Client(t).PubSubChannels(t.Context(), "*").Val()) == len(sems)
	})
	before := l.Token()
	s.Restart()
	eventually(t, "the slot is taken again", func() bool { return l.Token() != before })
	cancel()
	for range sems {
		if l := <-waited; l != nil {
			t.Errorf("a waiter went first: %v", l)
		}
	}
	release(t, l)
}

// A caller of Admit that can wait leaves a server that may be empty to the holders too. Then it asks again
// whether its key is blocked, as after any wait.
func TestAdmitLeavesAnEmptyServerToHolders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client, cfg := s.Client(t), semaphore.Config{TTL: time.Hour}
	g, other := redisGate(t, client, core.Config{}), redisGate(t, s.Client(t), core.Config{})
	full, free := semaphore.Cap{Key: newKey(t, "full"), Limit: 1}, semaphore.Cap{Key: newKey(t, "free"), Limit: 1}
	sem := newSemaphore(t, g, cfg)
	l := acquire(t, sem, full)
	waits := enqueue(t, sem, full)
	eventually(t, "it listens", func() bool { return len(client.PubSubChannels(t.Context(), "*").Val()) == 1 })
	before := l.Until()
	worked(t, client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	eventually(t, "it listens again", func() bool { return l.Until().After(before) })
	_, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{free}, MaxWait: 1})
	gatetest.Is(t, err, semaphore.ErrFull, "its time is over before the holders are back")
	blocks := limited(t, "blocks", core.Block{Strikes: 5, Within: time.Minute, For: time.Hour})
	list := core.Must(core.NewBlocklist(other, blocks))
	spends := core.Charge{Policy: limited(t, "spends", frozen(1)), Key: free.Key, Cost: 1}
	admitted := make(chan *semaphore.Lease)
	go func() {
		asks := core.Charge{Policy: blocks, Key: free.Key, Cost: core.NoCost}
		l, _, _ := sem.Admit(t.Context(), semaphore.Request{Caps: []semaphore.Cap{free}, MaxWait: semaphore.Forever}, asks, spends)
		admitted <- l
	}()
	eventually(t, "the charges are spent", func() bool { return gatetest.Used(t, other, spends.Policy, free.Key) == 1 })
	holder, err := newSemaphore(t, other, cfg).Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{free}})
	noError(t, err)
	worked(t, list.Block(t.Context(), free.Key, time.Hour))
	release(t, holder)
	if l := <-admitted; l != nil {
		t.Errorf("a blocked key was admitted: %v", l)
	}
	release(t, l)
	release(t, <-waits)
}

// While Redis is stopped, the failure mode answers every caller, and what Redis has granted a process
// counts in its share. A caller that waits in this process returns to Redis when Redis answers again.
func TestWaitersReturnToRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: shortTimeout, Replicas: 2})
	sem := newSemaphore(t, g, semaphore.Config{})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 6} // 3 in each of two processes
	first := acquire(t, sem, level)
	viaRedis(t, g, core.Charge{Policy: limited(t, "p", frozen(1)), Key: newKey(t, "z"), Cost: core.NoCost})
	s.Stop()
	var held []*semaphore.Lease
	local := func() {
		l := acquire(t, sem, level)
		gatetest.Equal(t, l.Token(), 0, "token without Redis")
		held = append(held, l)
	}
	local()
	local()
	wantFull(t, sem, "beyond the local share, with a slot of Redis's", level)
	gatetest.Fails(t, first.Release(t.Context()), "a stopped server has taken a release")
	local()
	wantFull(t, sem, "beyond the local share", level)
	waiting := enqueue(t, sem, level)
	s.Continue()
	l := <-waiting
	if l == nil || l.Token() == 0 {
		t.Errorf("the waiter did not return to Redis: %v", l)
	}
	release(t, held...)
	_ = l.Release(t.Context()) // a slow machine has too little time for it
}

// A subscription that hangs blocks nothing else: other leases are lost in time, and calls end with
// their contexts.
func TestHangingSubscriptionBlocksNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t, func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Hour, time.Hour, time.Hour
	})
	g := redisGate(t, client, core.Config{Timeout: busyTimeout})
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Second, OnFailure: core.FailClosed})
	l := acquire(t, sem, semaphore.Cap{Key: newKey(t, "k"), Limit: 1})
	s.Stop()
	defer s.Continue()
	done := make(chan error, 1)
	go func() {
		_, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "other"), Limit: 1}}, MaxWait: semaphore.Forever})
		done <- err
	}()
	for _, what := range []struct {
		name string
		over func() <-chan struct{}
	}{
		{"the lease is not lost", l.Lost},
		{"the call does not end", func() <-chan struct{} {
			over := make(chan struct{})
			go func() {
				gatetest.Fails(t, <-done, "acquired")
				close(over)
			}()
			return over
		}},
	} {
		select {
		case <-what.over():
		case <-time.After(longTimeout):
			t.Fatal(what.name)
		}
	}
}

// A caller learns that its own time is over, and not of overload, although the server answers others.
func TestAcquireEndsWithItsOwnDeadline(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	var answered func()
	var once sync.Once
	client.AddHook(onScripts(func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		if strings.Contains(fmt.Sprint(cmds[0].Args()...), "muted") {
			once.Do(func() {
				answered()
				<-ctx.Done()
			})
		}
		return send()
	}))
	var overloads atomic.Int64
	g := redisGate(t, client, core.Config{Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
		if isOp(e, core.OpOverload) {
			overloads.Add(1)
		}
	}})
	sem := newSemaphore(t, g, semaphore.Config{OnFailure: core.FailClosed})
	answered = func() { release(t, acquire(t, sem, semaphore.Cap{Key: newKey(t, "other"), Limit: 1})) }
	answered()
	ctx, cancel := context.WithTimeout(t.Context(), shortTimeout)
	defer cancel()
	_, err := sem.Acquire(ctx, semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "muted"), Limit: 1}}})
	gatetest.Is(t, err, context.DeadlineExceeded, "got")
	time.Sleep(busyTimeout / 2) // overload is told a moment later
	if n := overloads.Load(); n > 0 {
		t.Errorf("%d events of overload", n)
	}
}

// A waiter that was granted its slot and lost it to Evict before it heard takes no slot of another
// source.
func TestEvictedWaiterTakesNoLocalSlot(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.FailureMode{core.FailLocal, core.FailOpen} {
		s := redistest.Start(t)
		do(t, s.Client(t), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all", "-@pubsub")
		client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })
		sem := newSemaphore(t, redisGate(t, client, core.Config{}), semaphore.Config{TTL: time.Second, OnFailure: mode})
		level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
		first := acquire(t, sem, level)
		queued, ended := make(chan bool, 1), make(chan error)
		go func() {
			_, err := sem.Acquire(t.Context(), semaphore.Request{
				Caps: []semaphore.Cap{level}, MaxWait: semaphore.Forever, OnQueue: func(int) { queued <- true },
			})
			ended <- err
		}()
		<-queued
		release(t, first)
		evict(t, sem, level.Key)
		gatetest.Is(t, <-ended, semaphore.ErrLeaseLost, "%v", mode)
	}
}

// A full Redis takes slots back, also those whose releases share a script with acquires.
func TestFullRedisTakesReleases(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := redisGate(t, server.Client(t), core.Config{Prefix: server.Prefix, Timeout: longTimeout})
	s := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed})
	level := func(name string, i int) semaphore.Cap {
		return semaphore.Cap{Key: newKey(t, fmt.Sprint(name, i)), Limit: 1}
	}
	var held []*semaphore.Lease
	for i := range 100 {
		held = append(held, acquire(t, s, level("held", i)))
	}
	do(t, server.Client(t), "CONFIG", "SET", "maxmemory", "1")
	var wg sync.WaitGroup
	for i, l := range held {
		wg.Go(func() {
			worked(t, l.Release(context.Background()))
		})
		ask := semaphore.Request{Caps: []semaphore.Cap{level("new", i)}}
		wg.Go(func() { _, _ = s.Acquire(t.Context(), ask) }) // beside the releases of a script it may fit
	}
	wg.Wait()
}

// A slot that Redis has granted counts in the process's share in each outage, and not in the first
// alone.
func TestGrantedSlotsCountInEachOutage(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: busyTimeout})
	sem := newSemaphore(t, g, semaphore.Config{TTL: 3 * time.Second})
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	l := acquire(t, sem, level)
	for outage := range 2 {
		s.Stop()
		_, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}})
		if !errors.Is(err, semaphore.ErrFull) && l.Context().Err() == nil {
			t.Errorf("outage %d: %v beside a slot that is held", outage, err)
		}
		s.Continue()
		if outage == 0 {
			<-time.After(4 * time.Second) // the lease that the process has granted itself ends
		}
	}
}

// A user that may not use a command of the semaphores' scripts is refused, and the slot that it got
// without that command stays taken.
func TestForbiddenCommandKeepsSlot(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	for _, command := range []string{"hset", "zadd", "pexpire"} {
		t.Run(command, func(t *testing.T) {
			do(t, admin, "ACL", "SETUSER", command, "on", ">secret", "~*", "&*", "+@all", "-"+command)
			client := s.Client(t, func(o *redis.Options) { o.Username, o.Password = command, "secret" })
			g := redisGate(t, client, core.Config{})
			sem := newSemaphore(t, g, semaphore.Config{Name: command, TTL: time.Hour, OnFailure: core.FailClosed})
			ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 1}}}
			l := gatetest.Must(sem.Acquire(t.Context(), ask))(t)
			for range 3 {
				gatetest.Is(t, gatetest.Err(sem.Acquire(t.Context(), ask)), core.ErrMisconfigured, "got")
			}
			worked(t, l.Extend(t.Context()))
			release(t, l)
		})
	}
}

// No lease is lost over a link whose round trip takes a fifth of the TTL, though all connections were
// cut, and a new one of the client takes several round trips.
func TestLeasesSurviveASlowLink(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	for name, change := range map[string]func(o *redis.Options){
		"default client": func(o *redis.Options) { *o = redis.Options{Addr: o.Addr} },
		"advised client": func(o *redis.Options) { o.ContextTimeoutEnabled, o.DialerRetries = true, 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			link := redistest.StartLink(t, s.Addr)
			client := s.Client(t, func(o *redis.Options) {
				o.Addr = link.Addr
				change(o)
			})
			g := redisGate(t, client, core.Config{Timeout: time.Second})
			sem := newSemaphore(t, g, semaphore.Config{TTL: ttl})
			var leases []*semaphore.Lease
			for i := range 20 {
				leases = append(leases, acquire(t, sem, semaphore.Cap{Key: newKey(t, fmt.Sprint("k", i)), Limit: 1}))
			}
			link.Delay(ttl / 5)
			link.Cut()
			cut := time.Now()
			for _, l := range leases {
				eventually(t, "the lease is renewed or lost", func() bool {
					return l.Until().After(cut.Add(ttl)) || l.Context().Err() != nil
				})
				gatetest.Worked(t, l.Context().Err())
			}
			link.Delay(0)
			release(t, leases...)
		})
	}
}
