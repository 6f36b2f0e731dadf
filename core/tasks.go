package core

import (
	"context"
	"sync"
)

// tasks are the goroutines of a Gate. Unlike those of a sync.WaitGroup, the first may begin while somebody waits.
type tasks struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none is running, if somebody waits
}

func (t *tasks) run(f func()) {
	t.mu.Lock()
	t.running++
	t.mu.Unlock()
	go func() {
		defer t.end()
		f()
	}()
}

func (t *tasks) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns when none is running, or ctx ends.
func (t *tasks) wait(ctx context.Context) error {
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
