package nethttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
)

// mayWait reports whether the request may have to wait.
func (a *Admission) mayWait(charges []core.Charge) bool {
	cfg := &a.guard.cfg
	return cfg.MaxDelay > 0 && len(charges) > 0 || a.capped && cfg.Concurrency.MaxWait > 0
}

// decide spends the charges and takes the slot, both or neither.
func (a *Admission) decide(
	ctx context.Context, charges []core.Charge, slot core.SlotRequest,
) (err error) {
	cfg := &a.guard.cfg
	switch {
	case cfg.MaxDelay > 0 && len(charges) > 0:
		err = a.delay(ctx, charges, slot)
	case a.capped: // by method values the charges would escape to the heap
		if s := cfg.Concurrency.Semaphore; cfg.Concurrency.MaxWait > 0 {
			a.lease, a.decision, err = s.Admit(ctx, slot, charges...)
		} else {
			a.lease, a.decision, err = s.TryAdmit(ctx, slot, charges...)
		}
		a.reservation = a.lease.Reservation()
	case len(charges) == 0:
		a.decision.Allowed = true // no rule applies
	case a.guard.settles:
		a.reservation, a.decision, err = cfg.Gate.Charge(ctx, charges...)
	default:
		a.decision, err = cfg.Gate.Decide(ctx, charges...)
	}
	return err
}

// delay reserves the charges, waits until they may act, and then takes the slot.
func (a *Admission) delay(ctx context.Context, charges []core.Charge, slot core.SlotRequest) error {
	cfg := &a.guard.cfg
	reservation, d, err := cfg.Gate.Reserve(ctx, cfg.MaxDelay, charges...)
	a.decision = d
	if reservation == nil {
		return err
	}
	a.decision.Allowed = false
	defer func() {
		if !a.decision.Allowed { // also if Concurrency.OnQueue panics
			_ = reservation.Cancel(ctx) // on failure the cost stays spent
		}
	}()
	timer := time.NewTimer(reservation.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return fmt.Errorf("nethttp: %w", ctx.Err())
	}
	if a.capped {
		acquire := cfg.Concurrency.Semaphore.TryAcquire
		if cfg.Concurrency.MaxWait > 0 {
			acquire = cfg.Concurrency.Semaphore.Acquire
		}
		a.lease, err = acquire(ctx, slot)
	}
	if err == nil {
		a.reservation, a.decision.Allowed = reservation, true
		return nil
	}
	_ = reservation.Cancel(ctx)
	if errors.Is(err, core.ErrFull) { // the headers state what is left without this request
		if d, err := cfg.Gate.Peek(ctx, charges...); err == nil {
			a.decision, a.decision.Allowed = d, false
		}
	}
	return err
}

// explain marks the error of a decision as errLimit if a Rule.Limit returned a limit that is not
// valid. The Gate's error does not say so.
func (a *Admission) explain(charges []core.Charge, err error) error {
	for _, c := range charges {
		if c.Limit == nil {
			continue
		}
		_, invalid := core.NewPolicy(core.PolicyConfig{Name: c.Policy.Name(), Algorithm: c.Limit})
		if invalid != nil {
			return fmt.Errorf("%w of %s: %w", errLimit, c.Policy.Name(), invalid)
		}
	}
	return err
}
