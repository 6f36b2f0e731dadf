package breaker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Tasks are goroutines with one owner, which waits for them. Unlike with a sync.WaitGroup, the
// first may begin during Wait. NewTasks makes it. It is safe for concurrent use and must not be copied.
type Tasks struct {
	stopped context.Context
	stop    context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none runs; nil before the first
}

// NewTasks returns Tasks without a goroutine.
func NewTasks() *Tasks {
	t := new(Tasks)
	t.stopped, t.stop = context.WithCancel(context.Background())
	return t
}

// Go calls f in a goroutine.
func (t *Tasks) Go(f func()) {
	t.begin()
	go func() {
		defer t.end()
		f()
	}()
}

// Run calls f on the caller's goroutine.
func (t *Tasks) Run(f func()) {
	t.begin()
	defer t.end()
	f()
}

func (t *Tasks) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running++; t.running == 1 {
		t.idle = make(chan struct{})
	}
}

func (t *Tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 {
		close(t.idle)
	}
}

// Safely calls f. A panic, as in a hook of the client, is an error: nobody could recover it outside a task.
func Safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("headgate: panic: %v", p)
		}
	}()
	return f()
}

// Sleep waits for d and returns true, or returns false as soon as Stop is called.
func (t *Tasks) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-t.stopped.Done():
		return false
	}
}

// Stop ends every Sleep. It may be called again.
func (t *Tasks) Stop() { t.stop() }

// Stopped reports whether Stop was called.
func (t *Tasks) Stopped() bool { return t.stopped.Err() != nil }

// Wait returns nil when no goroutine runs, or the error of ctx if ctx ends first.
func (t *Tasks) Wait(ctx context.Context) error {
	t.mu.Lock()
	running, idle := t.running, t.idle
	t.mu.Unlock()
	if running == 0 {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
