// Package once lets work be done once for each key, over all replicas of a service: an idempotency
// key, the id of a webhook.
//
//	webhooks, err := once.New(gate, once.Config{Name: "webhooks", Window: 24 * time.Hour})
//	err = webhooks.Do(ctx, key, time.Second, handle) // once.ErrDone if it was done before
package once

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/hub"
)

var (
	// ErrDone is the error of a Once whose key is done.
	ErrDone = errors.New("once: this is done already")

	// ErrNotRecorded is wrapped by the errors of work on a Once that is done, while Redis does not
	// know that yet. It is sent again in the background.
	ErrNotRecorded = errors.New("once: the work is done, and not recorded yet")
)

// Config configures a Once.
type Config struct {
	// Name identifies the Once among those on the same keys. It has 1 to 56 of the characters A-Z
	// a-z 0-9 _ . and -.
	Name string
	// Window is how long a key that is done is remembered. It is required, of whole microseconds,
	// and at most 25 years.
	Window time.Duration
	// TTL is how long a key stays taken after the process that works on it has died. It is between
	// 1 s and 1 h. Zero means 10 s.
	TTL time.Duration
}

// Once lets work be done once for each key. One caller works on a key at a time. If its work
// succeeds, the key is remembered for Config.Window, and otherwise the next caller may try. If its
// process dies, the next caller may try after Config.TTL.
//
// Like every lease, that of a Once guarantees mutual exclusion only as long as its holder heeds the
// Attempt's context: see semaphore.Semaphore. While Redis does not answer, nobody works. If Redis
// loses its data, what was done is forgotten. A Once is immutable and safe for concurrent use.
type Once struct {
	gate    *core.Gate
	hub     *hub.Hub
	running *semaphore.Semaphore
	done    *core.Policy
}

// New returns a Once, or every fault of the configuration at once.
func New(gate *core.Gate, cfg Config) (*Once, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("once: "+format, args...))
	}
	lent := inside.Of(gate)
	if lent == nil {
		fault("the Gate is missing")
	}
	if err := inside.CheckName(cfg.Name, 56); err != nil {
		fault("Config.Name %w", err)
	}
	if cfg.TTL != 0 && (cfg.TTL < time.Second || cfg.TTL > time.Hour) {
		fault("Config.TTL is %v: it must be between 1s and 1h", cfg.TTL)
	}
	if _, err := donePolicy("checked", cfg.Window); err != nil {
		fault("Config.Window is %v: it must be positive, of whole microseconds, and at most 25 years",
			cfg.Window)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	name := cfg.Name + ".once" // beside semaphores and policies of the name
	running, err := semaphore.New(gate, semaphore.Config{
		Name: name, TTL: cfg.TTL, OnFailure: core.FailClosed,
	})
	if err != nil {
		return nil, err
	}
	done, err := donePolicy(name, cfg.Window)
	if err != nil {
		return nil, err
	}
	return &Once{gate, lent, running, done}, nil
}

// donePolicy returns the policy that keeps the marks of what is done. A mark is one strike that
// blocks the key for the window: a charge of no cost asks for it, in the step that takes the slot,
// and a process answers from memory for up to a second that a key is blocked.
func donePolicy(name string, window time.Duration) (*core.Policy, error) {
	return core.NewPolicy(core.PolicyConfig{
		Name: name, OnFailure: core.FailClosed, Algorithm: core.Block{
			Strikes: 1, Within: time.Microsecond, For: window, Forgive: time.Microsecond,
		},
	})
}

var inside = core.Inside(hub.Pass{})

// Gate returns the Gate of the Once, or nil for the zero value.
func (o *Once) Gate() *core.Gate { return o.gate }

// Begin begins to work on a key. If the key is done, the error is ErrDone. If another caller works
// on it, Begin waits for at most maxWait, as one of at most 100 in the order of their arrival, and
// then returns a *semaphore.FullError. Zero does not wait, and semaphore.Forever waits as long as
// ctx. While Redis does not answer, and for a Gate that is closed, the errors are those of
// semaphore.Semaphore.Acquire. On success the caller must call Succeed or Fail; defer Fail, which
// does nothing after Succeed.
func (o *Once) Begin(
	ctx context.Context, key core.Key, maxWait time.Duration,
) (*Attempt, error) {
	asked := core.Charge{Policy: o.done, Key: key, Cost: core.NoCost}
	slot := semaphore.Request{Caps: []semaphore.Cap{{Key: key, Limit: 1}}}
	maxWait = max(0, maxWait)
	var l *semaphore.Lease
	var d core.Decision
	err := semaphore.ErrFull
	oneStep := o.hub.Leases != o.hub.LocalLeases // memory looks after it has taken the slot
	if oneStep {
		l, d, err = o.running.Admit(ctx, slot, asked)
	}
	if errors.Is(err, semaphore.ErrFull) && (maxWait > 0 || !oneStep) {
		slot.MaxWait = maxWait
		l, d, err = o.look(ctx, asked, slot)
	}
	switch {
	case err != nil:
		return nil, err
	case d.Allowed:
		return &Attempt{once: o, key: key, lease: l}, nil
	case d.Cause != nil:
		return nil, fmt.Errorf("once: %w", d.Cause)
	}
	return nil, ErrDone
}

// look takes the slot first: what another caller has done is remembered before it gives the slot
// back.
func (o *Once) look(
	ctx context.Context, asked core.Charge, slot semaphore.Request,
) (l *semaphore.Lease, d core.Decision, err error) {
	if l, err = o.running.Acquire(ctx, slot); err != nil {
		return nil, d, err
	}
	defer func() {
		if err != nil || !d.Allowed {
			_ = l.Release(ctx) // on failure it ends
		}
	}()
	d, err = o.gate.Decide(ctx, asked)
	return l, d, err
}

// Do calls f unless the key is done, and remembers the key if f returns nil. If f returns an error
// or panics, the key is free again, and Do returns the error or panics. The errors of Begin mean
// that f was not called. After f has returned nil, the error wraps ErrNotRecorded or
// semaphore.ErrLeaseLost; see Succeed.
func (o *Once) Do(
	ctx context.Context, key core.Key, maxWait time.Duration, f func(context.Context) error,
) error {
	a, err := o.Begin(ctx, key, maxWait)
	if err != nil {
		return err
	}
	succeeded := false
	defer func() {
		if !succeeded { // f may panic
			_ = a.Fail(ctx) // on failure the lease ends
		}
	}()
	if err := f(a.Context()); err != nil {
		return err
	}
	succeeded = true
	return a.Succeed(ctx)
}

// Answer returns what Attempt.SucceedWith has kept for a key that is done. It is empty if nothing was
// kept. The errors are those of Redis.
func (o *Once) Answer(ctx context.Context, key core.Key) ([]byte, error) {
	answer, err := inside.Answer(ctx, o.gate, o.done, key)
	if err != nil {
		return nil, fmt.Errorf("once: %w", err)
	}
	return answer, nil
}

// Forget forgets that a key is done. It does not end work on the key. Other processes remember the
// key for up to a second. The errors are those of core.Gate.Reset.
func (o *Once) Forget(ctx context.Context, key core.Key) error {
	return o.gate.Reset(ctx, core.Charge{Policy: o.done, Key: key})
}
