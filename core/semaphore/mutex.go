package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/core"
)

// MutexConfig configures a Mutex.
type MutexConfig struct {
	// Name identifies the mutex among those on the same keys. It has 1 to 64 of the characters A-Z
	// a-z 0-9 _ . and -.
	Name string
	// TTL is how long the lock stays taken after its holder has died. See Config.
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
// other. Charge a core.FixedWindow with a Limit of 1 for that.
type Mutex struct {
	semaphore *Semaphore
	poll      Backoff
}

// NewMutex returns a Mutex, or every fault of the configuration at once.
func NewMutex(gate *core.Gate, cfg MutexConfig) (*Mutex, error) {
	s, err := newSemaphore(gate, Config{
		Name: cfg.Name, TTL: cfg.TTL, MaxHold: cfg.MaxHold, MaxWaiters: cfg.MaxWaiters,
		OnFailure: core.FailClosed,
	}, "MutexConfig")
	if err != nil {
		return nil, err
	}
	return &Mutex{s, cfg.Poll}, nil
}

func one(key core.Key, id string, maxWait time.Duration) Request {
	return Request{Caps: []Cap{{Key: key, Limit: 1}}, ID: id, MaxWait: maxWait}
}

// TryLock locks a key, or returns a *FullError at once. Lease.Release unlocks it.
func (m *Mutex) TryLock(ctx context.Context, key core.Key) (*Lease, error) {
	return m.TryLockAs(ctx, key, "")
}

// TryLockAs is TryLock with an ID, by which the lock is taken over and unlocked; see Request.ID and
// Unlock.
func (m *Mutex) TryLockAs(ctx context.Context, key core.Key, id string) (*Lease, error) {
	return m.semaphore.Acquire(ctx, one(key, id, 0))
}

// Lock locks a key, and waits as long as ctx until it can: in the queue, or as MutexConfig.Poll says. The errors
// are those of Semaphore.Acquire. Lease.Release unlocks the key, and Lease.Extend confirms that it
// is still locked.
func (m *Mutex) Lock(ctx context.Context, key core.Key) (*Lease, error) {
	return m.LockAs(ctx, key, "")
}

// LockAs is Lock with an ID, by which the lock is taken over and unlocked; see Request.ID and Unlock.
func (m *Mutex) LockAs(ctx context.Context, key core.Key, id string) (*Lease, error) {
	if m.poll == nil {
		return m.semaphore.Acquire(ctx, one(key, id, Forever))
	}
	for try := 1; ; try++ {
		l, err := m.TryLockAs(ctx, key, id)
		if !errors.Is(err, ErrFull) {
			return l, err
		}
		wait, ok := m.poll(try)
		if !ok {
			return nil, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("semaphore: lock: %w", ctx.Err())
		}
	}
}

// Unlock unlocks a key that LockAs or TryLockAs has locked under that ID, in whatever process, and
// reports whether it was locked so. The lease of the lock is lost. It reads the locks below the
// outermost part of the key, in one round trip, and unlocks in another. While Redis fails it returns
// the error of Redis.
func (m *Mutex) Unlock(ctx context.Context, key core.Key, id string) (bool, error) {
	holders, _, err := m.semaphore.Holders(ctx, key)
	if err != nil {
		return false, err
	}
	for _, h := range holders {
		if id != "" && h.Name == id && h.Key.String() == key.String() {
			n, err := m.semaphore.Evict(ctx, key, h.ID)
			return n > 0, err
		}
	}
	return false, nil
}

// Backoff returns the wait after the given number of tries, from 1, or false to give up. It must be
// safe for concurrent use.
type Backoff func(tries int) (wait time.Duration, ok bool)

// ConstantBackoff waits the same time after every try. It gives up after that many tries, or never
// at 0.
func ConstantBackoff(every time.Duration, maxTries int) Backoff {
	return func(tries int) (time.Duration, bool) { return every, maxTries == 0 || tries < maxTries }
}

// ExponentialBackoff doubles the wait after every try, up to a longest, and waits between half and
// all of it, so that callers do not ask all at once. It gives up after that many tries, or never at
// 0.
func ExponentialBackoff(first, longest time.Duration, maxTries int) Backoff {
	return func(tries int) (time.Duration, bool) {
		wait := first
		for i := 1; i < tries && wait < longest; i++ {
			wait *= 2
		}
		wait = min(wait, longest)
		jitter := time.Duration(rand.Int64N(int64(max(wait, 1))/2 + 1))
		return wait - jitter, maxTries == 0 || tries < maxTries
	}
}

// DecayingBackoff shortens the wait after every try by a quarter, from a first one towards a floor,
// so that callers that have waited long ask more often. It gives up after that many tries, or never
// at 0.
func DecayingBackoff(first, floor time.Duration, maxTries int) Backoff {
	return func(tries int) (time.Duration, bool) {
		above := first - floor
		for i := 1; i < tries && above > 0; i++ {
			above = above * 3 / 4
		}
		return floor + max(0, above), maxTries == 0 || tries < maxTries
	}
}
