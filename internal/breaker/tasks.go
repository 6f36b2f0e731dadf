package breaker

import (
	"context"
	"sync"
	"time"
)

// Tasks are goroutines with one owner, which waits for them. Unlike with a sync.WaitGroup, the
// first may begin during Wait. The zero value is ready to use. It is safe for concurrent use and
// must not be copied.
type Tasks struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none runs; nil unless somebody waits
	stop    chan struct{} // closed by Stop; see stopping
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
	t.running++
}

func (t *Tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// Sleep waits for d and returns true, or returns false as soon as Stop is called.
func (t *Tasks) Sleep(d time.Duration) bool {
	t.mu.Lock()
	stop := t.stopping()
	t.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-stop:
		return false
	}
}

// Stop ends every Sleep. It may be called again.
func (t *Tasks) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	stop := t.stopping()
	select {
	case <-stop:
	default:
		close(stop)
	}
}

// Stopped reports whether Stop was called.
func (t *Tasks) Stopped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.stopping():
		return true
	default:
		return false
	}
}

// stopping returns the channel that Stop closes. The lock is held.
func (t *Tasks) stopping() chan struct{} {
	if t.stop == nil {
		t.stop = make(chan struct{})
	}
	return t.stop
}

// Wait returns nil when no goroutine runs, or the error of ctx if ctx ends first.
func (t *Tasks) Wait(ctx context.Context) error {
	t.mu.Lock()
	if t.running == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
