// Package locks compares this project's semaphores and mutexes with the locks of other libraries.
package locks

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"

	"github.com/headgate/headgate/lab/bench/internal/measure"
	"github.com/headgate/headgate/lab/bench/internal/server"
)

// acquire waits for a lock of this name and takes it. What it returns gives the lock up.
type acquire func(ctx context.Context, name string) (release func(context.Context) error, err error)

// line is a line of the tables. What it makes is one client, with connections of its own as a process has them.
type line struct {
	name  string
	kind  measure.Kind
	make  func(*server.Server) (lock acquire, end func(), err error)
	alone bool // what a lone pair costs the server is counted
}

// validity is how long a lock outlives a holder that has died, the same for all.
const validity = 10 * time.Second

// lines returns the lines of the tables. An operation of this project may take as long as timeout, or as its
// default if that is 0.
func lines(timeout time.Duration) []line {
	return []line{
		{"Mutex, in the queue", measure.Ours, mutex(timeout, nil), true},
		{"Mutex, asks every 1 ms", measure.Ours, mutex(timeout, semaphore.ConstantBackoff(time.Millisecond, 0)), false},
		{"Semaphore of limit 1", measure.Ours, slots(timeout, 1), false},
		{"Semaphore of 2 caps", measure.Ours, slots(timeout, 2), true},
		{"redislock, asks every 1 ms", measure.Peer, bsm(time.Millisecond), true},
		{"redislock, asks every 10 ms", measure.Peer, bsm(10 * time.Millisecond), false},
		{"redsync v4, its defaults", measure.Peer, redsyncLock(), true},
		{"redsync v4, asks every 1 ms", measure.Peer, redsyncLock(
			redsync.WithRetryDelay(time.Millisecond), redsync.WithTries(10_000)), false},
		{"rueidislock, majority of 1", measure.Peer, rueidisLock, false},
		{"SET NX, asks every 1 ms", measure.Floor, setNX, true},
	}
}

// Alone makes the contenders of which lone pairs of an acquisition and a release are counted. An operation of
// this project may take as long as timeout.
func Alone(
	s *server.Server, timeout time.Duration,
) (contenders []measure.Contender, end func(), err error) {
	var ends []func()
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	for _, e := range lines(timeout) {
		if !e.alone {
			continue
		}
		lock, close, err := e.make(s)
		if err != nil {
			end()
			return nil, nil, fmt.Errorf("make %s: %w", e.name, err)
		}
		ends = append(ends, close)
		contenders = append(contenders, measure.Contender{Name: e.name, Kind: e.kind, Do: pair(lock)})
	}
	return contenders, end, nil
}

// pair takes a lock of a key and gives it up.
func pair(lock acquire) measure.Do {
	return func(ctx context.Context, _, key int) (bool, error) {
		release, err := lock(ctx, "own-"+strconv.Itoa(key))
		if err != nil {
			return false, err
		}
		return true, release(ctx)
	}
}

func gated(
	s *server.Server, timeout time.Duration, use func(*core.Gate) (acquire, error),
) (acquire, func(), error) {
	client := s.Client()
	gate, err := core.NewRedis(client, core.Config{Timeout: timeout})
	if err != nil {
		return nil, nil, fmt.Errorf("make the gate: %w", err)
	}
	lock, err := use(gate)
	return lock, func() {
		_ = gate.Close(context.Background())
		_ = client.Close()
	}, err
}

func mutex(timeout time.Duration, poll semaphore.Backoff) func(*server.Server) (acquire, func(), error) {
	return func(s *server.Server) (acquire, func(), error) {
		return gated(s, timeout, func(gate *core.Gate) (acquire, error) {
			name := "queued"
			if poll != nil {
				name = "polled"
			}
			m, err := semaphore.NewMutex(gate, semaphore.MutexConfig{Name: name, TTL: validity, Poll: poll})
			if err != nil {
				return nil, fmt.Errorf("make the mutex: %w", err)
			}
			return func(ctx context.Context, name string) (func(context.Context) error, error) {
				key, err := core.NewKey(name)
				if err != nil {
					return nil, fmt.Errorf("make the key: %w", err)
				}
				lease, err := m.Lock(ctx, key)
				return lease.Release, err
			}, nil
		})
	}
}

// slots takes slots of one cap, or of two: a user's below that of a tenant, which has room.
func slots(timeout time.Duration, caps int) func(*server.Server) (acquire, func(), error) {
	return func(s *server.Server) (acquire, func(), error) {
		return gated(s, timeout, func(gate *core.Gate) (acquire, error) {
			name := fmt.Sprint("slots-", caps)
			sem, err := semaphore.New(gate, semaphore.Config{Name: name, TTL: validity, OnFailure: core.FailClosed})
			if err != nil {
				return nil, fmt.Errorf("make the semaphore: %w", err)
			}
			return func(ctx context.Context, name string) (func(context.Context) error, error) {
				outer, err := core.NewKey(name)
				if err != nil {
					return nil, fmt.Errorf("make the key: %w", err)
				}
				ask := semaphore.Request{Caps: []semaphore.Cap{{Key: outer, Limit: 1}}, MaxWait: semaphore.Forever}
				if caps > 1 {
					inner, err := core.NewKey(name, "user")
					if err != nil {
						return nil, fmt.Errorf("make the key: %w", err)
					}
					ask.Caps = []semaphore.Cap{{Key: outer, Limit: 100}, {Key: inner, Limit: 1}}
				}
				lease, err := sem.Acquire(ctx, ask)
				return lease.Release, err
			}, nil
		})
	}
}

func bsm(every time.Duration) func(*server.Server) (acquire, func(), error) {
	return func(s *server.Server) (acquire, func(), error) {
		client := s.Client()
		locks := redislock.New(client)
		options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(every)}
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			lock, err := locks.Obtain(ctx, fmt.Sprint("redislock:", every, name), validity, options)
			if err != nil {
				return nil, err
			}
			return lock.Release, nil
		}, func() { _ = client.Close() }, nil
	}
}

func redsyncLock(options ...redsync.Option) func(*server.Server) (acquire, func(), error) {
	return func(s *server.Server) (acquire, func(), error) {
		client := s.Client()
		locks := redsync.New(redsyncpool.NewPool(client))
		prefix := fmt.Sprint("redsync:", len(options))
		options := append([]redsync.Option{redsync.WithExpiry(validity)}, options...)
		return func(ctx context.Context, name string) (func(context.Context) error, error) {
			lock := locks.NewMutex(prefix+name, options...)
			if err := lock.LockContext(ctx); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				if ok, err := lock.UnlockContext(ctx); err != nil || !ok {
					return errors.Join(errors.New("not unlocked"), err)
				}
				return nil
			}, nil
		}, func() { _ = client.Close() }, nil
	}
}

func rueidisLock(s *server.Server) (acquire, func(), error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}}, KeyMajority: 1, KeyValidity: validity,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make the locker: %w", err)
	}
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		_, cancel, err := locks.WithContext(ctx, name)
		return func(context.Context) error { cancel(); return nil }, err
	}, locks.Close, nil
}

// setNX is the least that a lock can be: it is not safe from a holder that outlives its lock in more than its release.
func setNX(s *server.Server) (acquire, func(), error) {
	client := s.Client()
	script := redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])`)
	owner := fmt.Sprintf("%p", client)
	return func(ctx context.Context, name string) (func(context.Context) error, error) {
		name = "setnx:" + name
		for {
			ok, err := client.SetNX(ctx, name, owner, validity).Result()
			if err != nil {
				return nil, err
			}
			if ok {
				return func(ctx context.Context) error { return script.Run(ctx, client, []string{name}, owner).Err() }, nil
			}
			time.Sleep(time.Millisecond)
		}
	}, func() { _ = client.Close() }, nil
}
