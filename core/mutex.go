package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// MutexConfig configures a Mutex.
type MutexConfig struct {
	// Name identifies the mutex among those on the same keys. It has 1 to 64 of the characters A-Z
	// a-z 0-9 _ . and -.
	Name string
	// TTL is how long the lock stays taken after its holder has died. See SemaphoreConfig.
	TTL time.Duration
	// MaxHold ends each lock after that time. Zero means no bound.
	MaxHold time.Duration
	// MaxWaiters bounds the queue of each key. Zero means 100.
	MaxWaiters int
	// Poll, if not nil, makes Lock ask from time to time instead of waiting in the queue. It is for
	// a Redis without Pub/Sub, behind a proxy or for lack of a permission. Callers are served in no
	// order then.
	Poll Backoff
}

// Mutex admits one holder at a time for each key. It is a Semaphore of one slot, and like that it
// guarantees mutual exclusion only if the protected resource checks Lease.Token. While Redis does
// not answer, nobody gets the lock. It is immutable and safe for concurrent use.
//
// A Mutex does not make a job run once per tick: replicas whose ticks differ run it one after the
// other. Charge a FixedWindow with a Limit of 1 for that.
type Mutex struct {
	sem  *Semaphore
	poll Backoff
}

// NewMutex returns a Mutex, or every fault of the configuration at once.
func NewMutex(g *Gate, cfg MutexConfig) (*Mutex, error) {
	s, err := NewSemaphore(g, SemaphoreConfig{
		Name: cfg.Name, TTL: cfg.TTL, MaxHold: cfg.MaxHold, MaxWaiters: cfg.MaxWaiters,
		OnFailure: FailClosed,
	})
	if err != nil {
		return nil, prefixed("core: mutex: ", err)
	}
	return &Mutex{s, cfg.Poll}, nil
}

func one(key Key) SlotRequest { return SlotRequest{Levels: []Level{{Key: key, Limit: 1}}} }

// TryLock locks a key, or returns a *FullError at once. Lease.Release unlocks it.
func (m *Mutex) TryLock(ctx context.Context, key Key) (*Lease, error) {
	return m.sem.TryAcquire(ctx, one(key))
}

// Lock locks a key, and waits until it can: in the queue, or as MutexConfig.Poll says. The errors
// are those of Semaphore.Acquire. Lease.Release unlocks the key, and Lease.Extend confirms that it
// is still locked.
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
