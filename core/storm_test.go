//go:build unix

package core_test

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
	"github.com/headgate/headgate/internal/redistest"
)

const (
	stormLease = time.Second
	stormAt    = "CORE_TEST_STORM" // the address of the Redis, in a process of TestStorm
)

// A storm is of processes that contend for slots as fast as they can. Some are killed again and
// again and followed by others, some stopped past their leases.
func TestStorm(t *testing.T) {
	processes, limit, lasts := 10, 3, 5*time.Second
	if long() {
		processes, limit, lasts = 24, 5, time.Minute
	}
	hurt := (processes + 9) / 10
	server := redistest.Start(t)
	over := make(chan struct{})
	var seats []*seat
	for range processes {
		s := &seat{t: t, addr: server.Addr, limit: limit, held: make(chan struct{}, 1)}
		seats = append(seats, s)
		s.sit()
	}
	for _, s := range seats {
		<-s.ready
	}
	var wg sync.WaitGroup
	for i, s := range seats {
		s.start()
		if i < hurt {
			wg.Go(func() { s.killAgainAndAgain(over) })
		} else if i < 2*hurt {
			wg.Go(func() { s.stopAgainAndAgain(over) })
		}
	}
	<-time.After(lasts)
	close(over)
	wg.Wait()
	for _, s := range seats {
		_ = s.in.Close() // ends it
	}
	for _, s := range seats {
		s.rise(false)
	}

	var all, served []belief
	tokens := make(map[int64]bool)
	fewest, most := 0, 0
	for i, s := range seats {
		all = append(all, s.beliefs...)
		for _, b := range s.beliefs {
			b.seat = i
			served = append(served, b)
			if tokens[b.token] {
				t.Errorf("token %d was given twice", b.token)
			}
			tokens[b.token] = true
		}
		if i < 2*hurt {
			continue
		}
		if n := len(s.beliefs); fewest == 0 {
			fewest, most = n, n
		} else {
			fewest, most = min(fewest, n), max(most, n)
		}
	}
	t.Logf("%d turns, %d killed, %d stopped, at most %d of %d at once, %d to %d turns of the others (%.3f)", len(all),
		seats[0].hurt*hurt, seats[hurt].hurt*hurt, mostAtOnce(all), limit, fewest, most, float64(most)/float64(fewest))
	if n := mostAtOnce(all); n != limit {
		t.Errorf("%d believed to hold at once, the limit is %d", n, limit)
	}
	// A short storm on a busy machine says more of the machine.
	if fewest == 0 || long() && float64(most)/float64(fewest) > 1.1 {
		t.Errorf("between %d and %d turns", fewest, most)
	}
	firstServed(t, served)
	nothingRemains(t, server.Client(t), limit)
}

// firstServed checks that nobody was passed by: while one stood in the queue, every other got a
// slot that he had waited for longer, and one more that he may have been given just before. Then he
// is last. Who stood still lost his place.
func firstServed(t *testing.T, served []belief) {
	t.Helper()
	slices.SortFunc(served, func(a, b belief) int { return cmp.Compare(a.token, b.token) })
	for i, b := range served {
		passed := make(map[int]int)
		if b.queued == 0 || b.from-b.queued > int64(stormLease/2) {
			continue
		}
		for j := i - 1; j >= 0 && i-j < 1000; j-- {
			if a := served[j]; a.from > b.queued && a.seat != b.seat {
				if passed[a.seat]++; passed[a.seat] > 2 {
					t.Fatalf("token %d was passed by %d times by one process", b.token, passed[a.seat])
				}
			}
		}
	}
}

// nothingRemains waits until the leases of the dead are over, and takes every slot once.
func nothingRemains(t *testing.T, client *redis.Client, limit int) {
	t.Helper()
	sem := stormSemaphore(t, client)
	level := core.Level{Key: newKey(t, "storm"), Limit: int64(limit)}
	for giveUp := time.Now().Add(patient); ; {
		holders, waiting, err := sem.Holders(t.Context(), level.Key)
		if err != nil {
			t.Fatal(err)
		}
		if len(holders)+waiting == 0 {
			break
		}
		if time.Now().After(giveUp) {
			t.Fatalf("%d hold and %d wait though all are gone", len(holders), waiting)
		}
	}
	var leases []*core.Lease
	for range limit {
		leases = append(leases, take(t, sem, level))
	}
	if _, err := sem.TryAcquire(t.Context(), core.SlotRequest{Levels: []core.Level{level}}); !errors.Is(err, core.ErrFull) {
		t.Errorf("one more than the limit: %v", err)
	}
	free(t, leases...)
	if keys, err := client.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("keys remain: %v, %v", keys, err)
	}
}

func stormSemaphore(t *testing.T, client *redis.Client) *core.Semaphore {
	g := redisGate(t, client, core.Config{})
	t.Cleanup(func() {
		if err := g.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return semaphore(t, g, core.SemaphoreConfig{TTL: stormLease, OnFailure: core.Closed})
}

// TestStormer is what each process of the storm does.
func TestStormer(t *testing.T) {
	addr := os.Getenv(stormAt)
	if addr == "" {
		t.Skip("runs as a process of TestStorm only")
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
	if _, err := fmt.Fscanln(in, &limit); err != nil {
		t.Fatal(err)
	}
	queued := false
	ask := core.SlotRequest{Levels: []core.Level{{Key: newKey(t, "storm"), Limit: limit}}, OnQueue: func(int) {
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
		believed := l.Until()
		if now := time.Now(); now.Before(believed) {
			believed = now
		}
		fmt.Println("free", clock.at(believed))
		if err := l.Release(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
