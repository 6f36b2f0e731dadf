//go:build unix

package semaphore_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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

const (
	stormLease   = time.Second
	stormAddrEnv = "CORE_TEST_STORM" // environment variable with the address of the Redis
)

// In a storm, processes contend for slots as fast as they can. Some are killed repeatedly and
// replaced, and some are stopped for longer than their leases.
func TestStorm(t *testing.T) {
	processes, limit, lasts := 10, 3, 5*time.Second
	if long() {
		processes, limit, lasts = 24, 5, time.Minute
	}
	faulty := (processes + 9) / 10
	server := redistest.Start(t)
	over := make(chan struct{})
	var workers []*worker
	for range processes {
		s := &worker{t: t, addr: server.Addr, limit: limit, granted: make(chan struct{}, 1)}
		workers = append(workers, s)
		s.spawn()
	}
	for _, s := range workers {
		<-s.ready
	}
	var wg sync.WaitGroup
	for i, s := range workers {
		s.contend()
		if i < faulty {
			wg.Go(func() { s.killRepeatedly(over) })
		} else if i < 2*faulty {
			wg.Go(func() { s.stopRepeatedly(over) })
		}
	}
	<-time.After(lasts)
	close(over)
	wg.Wait()
	for _, s := range workers {
		_ = s.in.Close() // ends it
	}
	for _, s := range workers {
		s.wait(false)
	}

	var all, served []interval
	tokens := make(map[int64]bool)
	fewest, most := 0, 0
	for i, s := range workers {
		all = append(all, s.intervals...)
		for _, b := range s.intervals {
			b.worker = i
			served = append(served, b)
			if tokens[b.token] {
				t.Errorf("token %d was granted twice", b.token)
			}
			tokens[b.token] = true
		}
		if i < 2*faulty {
			continue
		}
		if n := len(s.intervals); fewest == 0 {
			fewest, most = n, n
		} else {
			fewest, most = min(fewest, n), max(most, n)
		}
	}
	t.Logf("%d turns, %d killed, %d stopped, at most %d of %d at once, %d to %d turns of the others (%.3f)", len(all),
		workers[0].faults*faulty, workers[faulty].faults*faulty, maxOverlap(all), limit, fewest, most, float64(most)/float64(fewest))
	if n := maxOverlap(all); n != limit {
		t.Errorf("%d processes believed that they held a slot at once, want %d", n, limit)
	}
	// A short storm on a busy machine says more about the machine.
	if fewest == 0 || long() && float64(most)/float64(fewest) > 1.1 {
		t.Errorf("the processes got between %d and %d turns", fewest, most)
	}
	checkFairness(t, served)
	checkDrained(t, server.Client(t), limit)
}

// checkFairness checks that no process overtakes another: while a process is queued, every other
// process may get one slot that it has waited for longer, and one that it was granted just before.
// A process that was stopped has lost its place in the queue.
func checkFairness(t *testing.T, served []interval) {
	t.Helper()
	slices.SortFunc(served, func(a, b interval) int { return cmp.Compare(a.token, b.token) })
	for i, b := range served {
		passed := make(map[int]int)
		if b.queued == 0 || b.from-b.queued > int64(stormLease/2) {
			continue
		}
		for j := i - 1; j >= 0 && i-j < 1000; j-- {
			if a := served[j]; a.from > b.queued && a.worker != b.worker {
				if passed[a.worker]++; passed[a.worker] > 2 {
					t.Fatalf("one process overtook token %d %d times", b.token, passed[a.worker])
				}
			}
		}
	}
}

// checkDrained waits until the leases of dead processes have expired, and then takes every slot
// once.
func checkDrained(t *testing.T, client *redis.Client, limit int) {
	t.Helper()
	sem := stormSemaphore(t, client)
	level := semaphore.Cap{Key: newKey(t, "storm"), Limit: int64(limit)}
	for giveUp := time.Now().Add(longTimeout); ; {
		holders, waiting, err := sem.Holders(t.Context(), level.Key)
		if err != nil {
			t.Fatal(err)
		}
		if len(holders)+waiting == 0 {
			break
		}
		if time.Now().After(giveUp) {
			t.Fatalf("%d holders and %d waiters remain", len(holders), waiting)
		}
	}
	var leases []*semaphore.Lease
	for range limit {
		leases = append(leases, acquire(t, sem, level))
	}
	if _, err := sem.Acquire(t.Context(), semaphore.Request{Caps: []semaphore.Cap{level}}); !errors.Is(err, semaphore.ErrFull) {
		t.Errorf("beyond the limit: %v", err)
	}
	release(t, leases...)
	if keys := redistest.Keys(t, client, "*"); len(keys) > 0 {
		t.Errorf("keys remain: %v", keys)
	}
}

func stormSemaphore(t *testing.T, client *redis.Client) *semaphore.Semaphore {
	g := redisGate(t, client, core.Config{})
	t.Cleanup(func() {
		worked(t, g.Close(context.Background()))
	})
	return newSemaphore(t, g, semaphore.Config{TTL: stormLease, OnFailure: core.FailClosed})
}

// TestStormProcess is the body of each process of TestStorm.
func TestStormProcess(t *testing.T) {
	addr := os.Getenv(stormAddrEnv)
	if addr == "" {
		t.Skip("runs only as a process of TestStorm")
	}
	clock := wallclock{time.Now()}
	client := redis.NewClient(&redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = client.Close() })
	sem := stormSemaphore(t, client)
	fmt.Println("ready")
	in, limit := bufio.NewReader(os.Stdin), int64(0)
	gatetest.Must(fmt.Fscanln(in, &limit))(t)
	queued := false
	ask := semaphore.Request{Caps: []semaphore.Cap{{Key: newKey(t, "storm"), Limit: limit}}, MaxWait: semaphore.Forever, OnQueue: func(int) {
		if !queued {
			queued = true
			fmt.Println("wait", clock.at(time.Now()))
		}
	}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = io.Copy(io.Discard, in)
	}()
	for {
		select {
		case <-over:
			return
		default:
		}
		queued = false
		l, err := sem.Acquire(context.Background(), ask)
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Println("hold", l.Token(), clock.at(time.Now()))
		select {
		case <-time.After(time.Millisecond):
		case <-l.Context().Done():
		}
		end := l.Until()
		if now := time.Now(); now.Before(end) {
			end = now
		}
		fmt.Println("free", clock.at(end))
		worked(t, l.Release(context.Background()))
	}
}
