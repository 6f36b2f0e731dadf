package core

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/breaker"
	"github.com/headgate/headgate/internal/request"
)

var (
	// ErrDone is the error of a Once whose key is done.
	ErrDone = errors.New("core: this is done already")

	// ErrNotRecorded is wrapped by the errors of work on a Once that is done, while Redis does not
	// know that yet. It is sent again in the background.
	ErrNotRecorded = errors.New("core: the work is done, and not recorded yet")
)

// OnceConfig configures a Once.
type OnceConfig struct {
	// Name identifies the Once among those on the same keys. It has 1 to 56 of the characters A-Z a-z
	// 0-9 _ . and -.
	Name string
	// Window is how long a key that is done is remembered. It is required, of whole microseconds, and
	// at most 25 years.
	Window time.Duration
	// TTL is how long a key stays taken after the process that works on it has died. It is between 1 s
	// and 1 h. Zero means 10 s.
	TTL time.Duration
}

// Once lets work be done once for each key, over all processes: an idempotency key, the id of a
// webhook. One caller works on a key at a time. If its work succeeds, the key is remembered for
// OnceConfig.Window, and otherwise the next caller may try. If its process dies, the next caller
// may try after OnceConfig.TTL.
//
// Like every lease, that of a Once guarantees mutual exclusion only as long as its holder heeds the
// Attempt's context: see Semaphore. While Redis does not answer, nobody works. If Redis loses its
// data, what was done is forgotten. A Once is immutable and safe for concurrent use.
type Once struct {
	running *Semaphore
	done    *Policy
}

// NewOnce returns a Once, or every fault of the configuration at once.
func NewOnce(g *Gate, cfg OnceConfig) (*Once, error) {
	var errs []error
	if g == nil || g.store == nil {
		errs = append(errs, errors.New("core: the Gate of the Once is missing"))
	}
	if err := checkName(cfg.Name, 56); err != nil {
		errs = append(errs, fmt.Errorf("core: OnceConfig.Name %w", err))
	}
	if err := checkTTL(cfg.TTL); err != nil {
		errs = append(errs, fmt.Errorf("core: OnceConfig.TTL %w", err))
	}
	remembers := Block{
		Strikes: 1, Within: time.Microsecond, For: cfg.Window, Forgive: time.Microsecond,
	}
	if _, err := remembers.compile(); err != nil {
		errs = append(errs, fmt.Errorf("core: OnceConfig.Window is %v: "+
			"it must be positive, of whole microseconds, and at most 25 years", cfg.Window))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	name := cfg.Name + ".once" // beside semaphores and policies of the name
	running, err := NewSemaphore(g, SemaphoreConfig{Name: name, TTL: cfg.TTL, OnFailure: FailClosed})
	if err != nil {
		return nil, err
	}
	done, err := NewPolicy(PolicyConfig{Name: name, OnFailure: FailClosed, Algorithm: remembers})
	if err != nil {
		return nil, err
	}
	return &Once{running, done}, nil
}

// Gate returns the Gate of the Once, or nil for the zero value.
func (o *Once) Gate() *Gate {
	if o.running == nil {
		return nil
	}
	return o.running.gate
}

// Begin begins to work on a key. If the key is done, the error is ErrDone. If another caller works
// on it, Begin waits for at most maxWait, as one of at most 100 in the order of their arrival, and
// then returns a *FullError; zero does not wait. While Redis does not answer, and for a Gate that
// is closed, the errors are those of Semaphore.Acquire. On success the caller must call Succeed or
// Fail; defer Fail, which does nothing after Succeed.
func (o *Once) Begin(ctx context.Context, key Key, maxWait time.Duration) (*Attempt, error) {
	asked := Charge{Policy: o.done, Key: key, Cost: NoCost}
	slot := one(key)
	slot.MaxWait = max(0, maxWait)
	var l *Lease
	var d Decision
	var err error = ErrFull
	if o.running.inOneStep(slot, []Charge{asked}) {
		l, d, err = o.running.TryAdmit(ctx, slot, asked)
	} else if maxWait <= 0 {
		l, d, err = o.look(ctx, asked, slot, o.running.TryAcquire)
	}
	if maxWait > 0 && errors.Is(err, ErrFull) {
		l, d, err = o.look(ctx, asked, slot, o.running.Acquire)
	}
	switch {
	case err != nil:
		return nil, err
	case d.Allowed:
		return &Attempt{once: o, key: key, lease: l}, nil
	case d.Cause != nil:
		return nil, fmt.Errorf("core: once: %w", d.Cause)
	}
	return nil, ErrDone
}

// look takes the slot first: what another caller has done is remembered before it gives the slot
// back.
func (o *Once) look(
	ctx context.Context, asked Charge, slot SlotRequest,
	acquire func(context.Context, SlotRequest) (*Lease, error),
) (l *Lease, d Decision, err error) {
	if l, err = acquire(ctx, slot); err != nil {
		return nil, d, err
	}
	defer func() {
		if err != nil || !d.Allowed {
			_ = l.Release(ctx) // on failure it ends
		}
	}()
	d, err = o.running.gate.Decide(ctx, asked)
	return l, d, err
}

// Do calls f unless the key is done, and remembers the key if f returns nil. If f returns an error
// or panics, the key is free again, and Do returns the error or panics. The errors of Begin mean
// that f was not called. After f has returned nil, the error wraps ErrNotRecorded or ErrLeaseLost;
// see Succeed.
func (o *Once) Do(
	ctx context.Context, key Key, maxWait time.Duration, f func(context.Context) error,
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

// Forget forgets that a key is done. It does not end work on the key. Other processes remember the
// key for up to a second. The errors are those of Gate.Reset.
func (o *Once) Forget(ctx context.Context, key Key) error {
	return o.running.gate.Reset(ctx, Charge{Policy: o.done, Key: key})
}

// Attempt is work on a key of a Once. Its methods are safe for concurrent use, and may be called on
// nil. Only the first call of Succeed or Fail counts; later calls do nothing and return nil.
type Attempt struct {
	once  *Once
	key   Key
	lease *Lease
	ended atomic.Bool
}

// Context returns the context for the work. It ends when the Attempt does, and when another caller
// may begin, with the cause ErrLeaseLost.
func (a *Attempt) Context() context.Context {
	if a == nil {
		return context.Background()
	}
	return a.lease.Context()
}

// Succeed remembers that the key is done. It runs to its end even if ctx is cancelled, for about
// Config.Timeout. If Redis does not answer, the error wraps ErrNotRecorded, and Succeed sends it
// again in the background, until Redis has it or the Gate is closed. The key stays taken meanwhile,
// as long as its lease can be renewed. If the lease was lost before, the error wraps ErrLeaseLost:
// the key is remembered, and another caller may have worked on it too.
func (a *Attempt) Succeed(ctx context.Context) error {
	if a == nil || a.ended.Swap(true) {
		return nil
	}
	lost := false
	select {
	case <-a.lease.Lost():
		lost = true
	default:
	}
	ctx = context.WithoutCancel(ctx)
	err := a.remember(ctx)
	if err == nil && lost {
		err = fmt.Errorf("core: once: %w", ErrLeaseLost)
	}
	if err == nil || errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrMisconfigured) {
		_ = a.lease.Release(ctx) // on failure it ends
		return err
	}
	l := a.lease.Detach()
	tasks := a.once.running.gate.tasks
	tasks.Go(func() {
		// What is done is done, also if the lease is lost.
		for again := true; again && tasks.Sleep(breaker.Pause); {
			err := a.remember(ctx)
			again = err != nil && !errors.Is(err, ErrMisconfigured)
		}
		_ = l.Release(ctx) // on failure it ends
	})
	return fmt.Errorf("%w: %w", ErrNotRecorded, err)
}

// remember works on a closed Gate too, whose holders finish.
func (a *Attempt) remember(ctx context.Context) error {
	done := &Blocklist{a.once.running.gate, a.once.done}
	return done.send(ctx, a.key, func(r *request.Request, b *algorithm.Block) {
		r.Op, r.Charges[0].Cost = algorithm.Force, b.Cost(1)
	})
}

// Fail lets the next caller try. If it fails, it is sent again in the background until Redis
// answers, as by Lease.Release.
func (a *Attempt) Fail(ctx context.Context) error {
	if a == nil || a.ended.Swap(true) {
		return nil
	}
	return a.lease.Release(ctx)
}
