package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MutexConfig says what a mutex is.
type MutexConfig struct {
	// Name tells the mutex from others on the same keys: 1 to 64 of the characters A-Z a-z 0-9 _ . and -.
	Name string
	// TTL is how long the lock stays taken when its holder has died. See SemaphoreConfig.
	TTL time.Duration
	// MaxHold ends every lock after that time. Zero is no bound.
	MaxHold time.Duration
	// MaxWaiters bounds the queue. It is 100 if zero.
	MaxWaiters int
	// Poll, if not nil, makes Lock ask again and again instead of standing in the queue, where Redis may not be
	// subscribed to: behind a proxy, or for lack of a permission. Then nobody is first by right.
	Poll Backoff
}

// Mutex lets one holder in at a time, of each key: a Semaphore of one slot. Like that it is no mutual exclusion for
// correctness, unless what it protects checks the lease's Token. While Redis does not answer, nobody gets it. It is
// immutable and safe for concurrent use.
type Mutex struct {
	sem  *Semaphore
	poll Backoff
}

// NewMutex validates the configuration and returns every fault of it at once.
func NewMutex(g *Gate, cfg MutexConfig) (*Mutex, error) {
	s, err := NewSemaphore(g, SemaphoreConfig{
		Name: cfg.Name, TTL: cfg.TTL, MaxHold: cfg.MaxHold, MaxWaiters: cfg.MaxWaiters, OnFailure: Closed,
	})
	if err != nil {
		return nil, prefixed("core: mutex: ", err)
	}
	return &Mutex{s, cfg.Poll}, nil
}

func one(key Key) SlotRequest { return SlotRequest{Levels: []Level{{Key: key, Limit: 1}}} }

// TryLock locks a key, or returns a *FullError at once. The Lease unlocks it by Release.
func (m *Mutex) TryLock(ctx context.Context, key Key) (*Lease, error) {
	return m.sem.TryAcquire(ctx, one(key))
}

// Lock locks a key, and waits for it: in the queue, or by asking again as MutexConfig.Poll says. The errors are those of
// Semaphore.Acquire. The Lease unlocks it by Release, and tells by Extend whether it is locked still.
func (m *Mutex) Lock(ctx context.Context, key Key) (*Lease, error) {
	if m.poll == nil {
		return m.sem.Acquire(ctx, one(key))
	}
	for try := 1; ; try++ {
		l, err := m.TryLock(ctx, key)
		if !errors.Is(err, ErrFull) {
			return l, err
		}
		wait, ok := m.poll(try)
		if !ok {
			return nil, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, fmt.Errorf("core: lock: %w", err)
		}
	}
}
