//go:build unix

package semaphore_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	gatetest.Equal(t, maxOverlap(all), limit, "processes believed that they held a slot at once")
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
		noError(t, err)
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

// worker runs one process of the storm after the other.
type worker struct {
	t         *testing.T
	addr      string
	limit     int
	cmd       *exec.Cmd
	in        io.WriteCloser
	ready     chan struct{}
	done      chan struct{}
	granted   chan struct{} // told of grants
	intervals []interval    // belongs to readOutput until done is closed
	faults    int
}

func (w *worker) spawn() {
	self := gatetest.Must(os.Executable())(w.t)
	cmd := exec.Command(self, "-test.run=^TestStormProcess$")
	// With the race detector a process waits for a second before it exits.
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", stormAddrEnv+"="+w.addr)
	cmd.Stderr = w.t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		w.t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Error(err)
		return
	}
	if err := cmd.Start(); err != nil {
		w.t.Error(err)
		return
	}
	w.cmd, w.in, w.ready, w.done = cmd, in, make(chan struct{}), make(chan struct{})
	go w.readOutput(out, w.ready, w.done)
}

// contend tells the process to start.
func (w *worker) contend() {
	if _, err := fmt.Fprintln(w.in, w.limit); err != nil {
		w.t.Error(err)
	}
}

// readOutput records the intervals of the process. The last one has no end if the process was
// killed.
func (w *worker) readOutput(out io.Reader, ready, done chan struct{}) {
	defer close(done)
	queued := int64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		b := interval{queued: queued}
		switch line := lines.Text(); {
		case line == "ready":
			close(ready)
		case strings.HasPrefix(line, "wait "):
			_, _ = fmt.Sscanf(line, "wait %d", &queued) // a kill may cut this line short
		case strings.HasPrefix(line, "hold "):
			queued = 0
			if _, err := fmt.Sscanf(line, "hold %d %d", &b.token, &b.from); err == nil {
				w.intervals = append(w.intervals, b)
				select {
				case w.granted <- struct{}{}:
				default:
				}
			}
		case strings.HasPrefix(line, "free "):
			// A kill may cut this line short.
			_, _ = fmt.Sscanf(line, "free %d", &w.intervals[len(w.intervals)-1].to)
		case strings.HasPrefix(line, "---"), strings.HasPrefix(line, "    "):
			w.t.Log(line)
		}
	}
}

// wait waits for the process to end.
func (w *worker) wait(killed bool) {
	<-w.done
	if err := w.cmd.Wait(); err != nil && !killed {
		w.t.Error(err)
	}
	if n := len(w.intervals); n > 0 && w.intervals[n-1].to == 0 {
		if w.intervals[n-1].to = time.Now().UnixNano(); !killed {
			w.t.Error("a process ended while it held a slot")
		}
	}
}

// nextFault waits for a random time and then, every other call, until the process has just been
// granted a slot. It reports whether the storm goes on.
func (w *worker) nextFault(over <-chan struct{}, atLeast time.Duration) bool {
	wait := time.NewTimer(atLeast + rand.N(atLeast))
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-over:
		return false
	}
	if w.faults++; w.faults%2 == 0 {
		return true
	}
	select { // an earlier grant
	case <-w.granted:
	default:
	}
	select {
	case <-w.granted:
		return true
	case <-over:
		return false
	}
}

func (w *worker) killRepeatedly(over <-chan struct{}) {
	for w.nextFault(over, stormLease) {
		_ = w.cmd.Process.Kill()
		w.wait(true)
		w.spawn()
		<-w.ready
		w.contend()
	}
}

func (w *worker) stopRepeatedly(over <-chan struct{}) {
	for w.nextFault(over, stormLease) {
		_ = w.cmd.Process.Signal(syscall.SIGSTOP)
		<-time.After(stormLease + rand.N(stormLease))
		_ = w.cmd.Process.Signal(syscall.SIGCONT)
	}
}

// interval is the time during which a process believed that it held a slot. It starts when the
// process saw the grant. It ends when the process released the slot, was killed, or knew by its own
// clock that its lease might have ended. All processes use one clock for these times.
type interval struct {
	worker   int   // index of the process
	queued   int64 // when the process learnt that it was queued, 0 if it was not
	token    int64
	from, to int64
}

// maxOverlap returns how many intervals overlap at most.
func maxOverlap(all []interval) int {
	type change struct {
		at int64
		by int
	}
	var changes []change
	for _, b := range all {
		if b.to > b.from {
			changes = append(changes, change{b.from, 1}, change{b.to, -1})
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	now, most := 0, 0
	for _, c := range changes {
		now += c.by
		most = max(most, now)
	}
	return most
}

// wallclock converts times of a process to a clock that all processes share. It adds the time on
// the monotonic clock, which goes on while the process is stopped, to the wall-clock time of the
// start.
type wallclock struct{ start time.Time }

func (w wallclock) at(t time.Time) int64 { return w.start.UnixNano() + int64(t.Sub(w.start)) }
