package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/gatetest"
	"github.com/headgate/headgate/internal/redistest"
)

// Thousands of acquires at once are no outage either. No process grants Local slots.
func TestCrowdOfAcquiresIsNoOutage(t *testing.T) {
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{Timeout: 2 * busyTimeout})
	noError(t, g.Ping(t.Context()))
	stop := others(t, g)
	sem := newSemaphore(t, g, semaphore.Config{})
	ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "k"), Limit: 50}}}
	var held, most atomic.Int64
	full := make(chan struct{})
	var asked, wg sync.WaitGroup
	for range 5000 {
		asked.Add(1)
		wg.Go(func() {
			l, err := sem.Acquire(context.Background(), ask)
			if err == nil {
				for n := held.Add(1); ; {
					m := most.Load()
					if n <= m || most.CompareAndSwap(m, n) {
						break
					}
				}
			} else if !errors.Is(err, semaphore.ErrFull) {
				t.Error(err)
			}
			asked.Done()
			if <-full; err == nil {
				release(t, l)
			}
		})
	}
	asked.Wait()
	close(full)
	wg.Wait()
	stop()
	gatetest.Equal(t, most.Load(), 50, "slots were held")
	worked(t, g.Close(t.Context()))
}

// Acquires that are cancelled at random leave nothing behind.
func TestCancelledAcquiresLeaveNothing(t *testing.T) {
	s := redistest.Start(t)
	g := redisGate(t, s.Client(t), core.Config{})
	sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed, MaxWaiters: 100_000})
	tenant := newKey(t, "t")
	ask := semaphore.Request{
		Caps:    []semaphore.Cap{{Key: tenant, Limit: 20}, {Key: newKey(t, "t", "u"), Limit: 3}},
		MaxWait: semaphore.Forever,
	}
	rounds := 2
	if long() {
		rounds = 20
	}
	for range rounds {
		var wg sync.WaitGroup
		for i := range 5000 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%997)*300*time.Microsecond)
				defer cancel()
				if l, err := sem.Acquire(ctx, ask); err == nil {
					release(t, l)
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		waitEmpty(t, sem, tenant)
	}
	worked(t, g.Close(t.Context()))
}

// waitEmpty waits until nobody holds or awaits a slot. Leases of an hour end no wait.
func waitEmpty(t *testing.T, sem *semaphore.Semaphore, key core.Key) {
	t.Helper()
	eventually(t, "nobody holds or awaits a slot", func() bool {
		holders, waiters, err := sem.Holders(t.Context(), key)
		return err == nil && len(holders) == 0 && waiters == 0
	})
}

// A release that fails is sent again once Redis answers. The lease of an hour does not free the slot.
func TestFailedReleaseIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, stand := range map[string]func(s *redistest.Server){
		"stopped": (*redistest.Server).Stop,
		"killed":  (*redistest.Server).Kill,
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			g := redisGate(t, s.Client(t), core.Config{Timeout: busyTimeout})
			sem := newSemaphore(t, g, semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed})
			level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
			l := acquire(t, sem, level)
			stand(s)
			gatetest.Fails(t, l.Release(t.Context()), "the release did not fail")
			if name == "stopped" {
				s.Continue()
			} else {
				s.Restart()
			}
			waitEmpty(t, sem, level.Key)
			worked(t, g.Close(t.Context()))
		})
	}
}

// When one primary of a cluster is gone, its keys alone are affected.
func TestDeadShardCostsItsOwnKeys(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, "--cluster-require-full-coverage", "no")
	client := c.Client(t)
	var opened sync.Map
	g := redisGate(t, client, core.Config{Timeout: busyTimeout, Observe: func(_ context.Context, e core.Event) {
		if isOp(e, core.OpCircuitOpened) {
			opened.Store(e.(*core.ServerEvent).Node, true)
		}
	}})
	sem := newSemaphore(t, g, semaphore.Config{TTL: 6 * time.Second, OnFailure: core.FailClosed})
	closed := newPolicy(t, core.PolicyConfig{Name: "p", Algorithm: frozen(1_000_000), OnFailure: core.FailClosed})
	dead := c.Nodes[1]
	var healthy []*semaphore.Lease
	var keys [2][]core.Key // of healthy servers, and of the dead one
	for i := range 60 {
		key := newKey(t, fmt.Sprint("k", i))
		node := gatetest.Must(client.MasterForKey(t.Context(), "{"+fmt.Sprint("k", i)+"}"))(t)
		l := acquire(t, sem, semaphore.Cap{Key: key, Limit: 1})
		decide(t, g, core.Charge{Policy: closed, Key: key, Cost: 1})
		if node.Options().Addr == dead.Addr {
			keys[1] = append(keys[1], key)
			continue
		}
		keys[0], healthy = append(keys[0], key), append(healthy, l)
	}
	dead.Kill()
	over := make(chan struct{})
	var doomed sync.WaitGroup
	for _, key := range keys[1] {
		doomed.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
				}
				d, err := g.Decide(context.Background(), core.Charge{Policy: closed, Key: key, Cost: 1})
				if err != nil || d.Allowed {
					t.Errorf("of the dead server: allowed %v, %v", d.Allowed, err)
				}
			}
		})
	}
	renewed := healthy[0].Until()
	for round := 0; round < 2 || !healthy[0].Until().After(renewed.Add(2*time.Second)); round++ {
		for _, key := range keys[0] {
			d, err := g.Decide(t.Context(), core.Charge{Policy: closed, Key: key, Cost: 1})
			if err != nil || !d.Allowed {
				t.Errorf("of a healthy server: denied by %v, %v, %v", d.Source, d.Cause, err)
			}
		}
	}
	close(over)
	doomed.Wait()
	for _, l := range healthy {
		select {
		case <-l.Lost():
			t.Error("a lease of a healthy server is lost")
		default:
		}
		release(t, l)
	}
	opened.Range(func(node, _ any) bool {
		gatetest.Equal(t, node.(string), dead.Addr, "the circuit that opened")
		return true
	})
	if _, ok := opened.Load(dead.Addr); !ok {
		t.Error("the circuit of the dead server did not open")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_ = g.Close(ctx) // the dead server's leases cannot be released
}

// A subscription that the network has forgotten is noticed, so that waiters are notified and do not
// poll.
func TestHalfOpenSubscriptionIsNoticed(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	link := redistest.StartLink(t, s.Addr)
	near := redisGate(t, s.Client(t), core.Config{})
	far := redisGate(t, s.Client(t, func(o *redis.Options) { o.Addr = link.Addr }), core.Config{Timeout: shortTimeout})
	cfg := semaphore.Config{TTL: time.Hour, OnFailure: core.FailClosed}
	holder, waiter := newSemaphore(t, near, cfg), newSemaphore(t, far, cfg)
	level := semaphore.Cap{Key: newKey(t, "k"), Limit: 1}
	handOff := func() {
		t.Helper()
		first := acquire(t, holder, level)
		second := enqueue(t, waiter, level)
		release(t, first)
		release(t, <-second)
	}
	admin := s.Client(t)
	subscribed := func() (ids []int) {
		text := admin.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").String()
		for _, found := range regexp.MustCompile(`id=(\d+)`).FindAllStringSubmatch(text, -1) {
			n := gatetest.Must(strconv.Atoi(found[1]))(t)
			ids = append(ids, n)
		}
		return ids
	}
	newest := func() int { return slices.Max(subscribed()) }
	charge := core.Charge{Policy: limited(t, "p", frozen(10)), Key: newKey(t, "x"), Cost: 1}
	viaRedis(t, far, charge)
	handOff()
	eventually(t, "both listen", func() bool { return len(subscribed()) == 2 })
	last := newest()
	link.Freeze()
	viaRedis(t, far, charge)
	eventually(t, "it listens by another connection", func() bool { return newest() != last })
	handOff()
	for _, g := range []*core.Gate{near, far} {
		worked(t, g.Close(t.Context()))
	}
}

// While a slot is half migrated, Redis answers TRYAGAIN to scripts on keys of both halves. A lease
// outlives that, and an acquire waits for its end.
func TestHalfMigratedSlotIsAskedAgain(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2)
	client := c.Client(t)
	g := redisGate(t, client, core.Config{})
	const ttl = 6 * time.Second
	sem := newSemaphore(t, g, semaphore.Config{TTL: ttl, OnFailure: core.FailClosed})
	level := semaphore.Cap{Key: newKey(t, "unlucky"), Limit: 2}
	l := acquire(t, sem, level)
	from := gatetest.Must(client.MasterForKey(t.Context(), "{unlucky}"))(t)
	to := c.Nodes[0].Client(t)
	if to.Options().Addr == from.Options().Addr {
		to = c.Nodes[1].Client(t)
	}
	slot := client.ClusterKeySlot(t.Context(), "{unlucky}").Val()
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(t.Context()).Val())
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(t.Context()).Val())
	var acquired sync.WaitGroup
	acquired.Go(func() { release(t, acquire(t, sem, level)) })
	eventually(t, "a renewal was due at two thirds", func() bool { return time.Until(l.Until()) <= ttl/2 })
	for _, node := range []*redis.Client{from, to} {
		do(t, node, "CLUSTER", "SETSLOT", slot, "STABLE")
	}
	acquired.Wait()
	if err := l.Context().Err(); err != nil {
		t.Error(context.Cause(l.Context()))
	}
	release(t, l)
	worked(t, g.Close(t.Context()))
}
