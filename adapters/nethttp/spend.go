package nethttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/hub"
)

// buffer reads the body of a request ahead that may have to wait.
func (x *Exchange) buffer(r *http.Request, charges []core.Charge) error {
	cfg := &x.guard.cfg
	if cfg.MaxDelay > 0 && len(charges) > 0 || x.capped && cfg.Slot.MaxWait > 0 {
		return bufferBody(r, cfg.BufferBody)
	}
	return nil
}

// spend spends the charges, or others that follow them, and takes the slot, both or neither. There is
// no slot to take unless the Guard has a Config.Slot that applies.
func (x *Exchange) spend(
	ctx context.Context, charges []core.Charge, slot *semaphore.Request,
) (err error) {
	err = x.spendOnce(ctx, charges, slot)
	for err == nil && x.guard.follows && x.follow(charges) {
		err = x.spendOnce(ctx, charges, slot)
	}
	return err
}

// spendOnce is spend without what follows.
func (x *Exchange) spendOnce(
	ctx context.Context, charges []core.Charge, slot *semaphore.Request,
) (err error) {
	if x.guard.keeps {
		if charges, err = x.keep(charges); err != nil {
			return err
		}
	}
	switch cfg := &x.guard.cfg; {
	case cfg.MaxDelay > 0 && len(charges) > 0:
		err = x.delay(ctx, charges, slot)
	case x.capped:
		slot.MaxWait = x.atMost(slot.MaxWait)
		// Admit keeps what it is given. The caller's charges are not on the heap.
		own := append([]core.Charge(nil), charges...)
		x.lease, err = semaphore.Inside(hub.Pass{}).Admit(ctx, cfg.Slot.Semaphore, *slot, &x.decision, own)
		x.reservation = x.lease.Reservation()
	case len(charges) == 0:
		x.decision.Allowed = true // no rule applies
	case x.guard.settles:
		x.reservation, x.decision, err = cfg.Gate.Charge(ctx, charges...)
	default:
		x.decision, err = cfg.Gate.Decide(ctx, charges...)
	}
	return err
}

// delay reserves the charges, waits until they may act, and then takes the slot. If what they held
// has expired meanwhile, it spends them again.
func (x *Exchange) delay(ctx context.Context, charges []core.Charge, slot *semaphore.Request) error {
	cfg := &x.guard.cfg
	reservation, d, err := cfg.Gate.Reserve(ctx, x.atMost(cfg.MaxDelay), charges...)
	x.decision = d
	if reservation == nil {
		return err
	}
	x.decision.Allowed = false
	defer func() {
		if !x.decision.Allowed { // also if Slot.OnQueue panics
			_ = reservation.Cancel(ctx) // on failure the cost stays spent
			_ = x.lease.Release(ctx)    // on failure the slot is free when its lease ends
		}
	}()
	if err := inside.Of(cfg.Gate).Keeper.Sleep(ctx, reservation.Delay()); err != nil {
		return fmt.Errorf("nethttp: %w", err)
	}
	delayed := slot.MaxWait > 0
	for _, r := range d.Results() { // all of the delay may have passed before Sleep
		delayed = delayed || r.Delay > 0
	}
	allowed, err := x.proceed(ctx, delayed, slot)
	if allowed && err == nil && delayed && !reservation.Kept() {
		_ = reservation.Cancel(ctx)
		reservation, x.decision, err = cfg.Gate.Reserve(ctx, 0, charges...)
		allowed = reservation != nil
	}
	if allowed && err == nil {
		x.reservation, x.decision.Allowed = reservation, true
		return nil
	}
	_ = reservation.Cancel(ctx)
	if err == nil || errors.Is(err, semaphore.ErrFull) { // the headers state what is left without it
		if d, err := cfg.Gate.Peek(ctx, charges...); err == nil {
			x.decision, x.decision.Allowed = d, false
		}
	}
	return err
}

// proceed takes the slot of a request whose charges act now. If it has waited, it asks again whether the
// client is blocked.
func (x *Exchange) proceed(
	ctx context.Context, delayed bool, slot *semaphore.Request,
) (allowed bool, err error) {
	d := core.Decision{Allowed: true}
	switch {
	case x.capped:
		slot.MaxWait = x.atMost(slot.MaxWait)
		var asks []core.Charge
		if delayed {
			asks = x.blocks
		}
		x.lease, d, err = x.guard.cfg.Slot.Semaphore.Admit(ctx, *slot, asks...)
	case ctx.Err() != nil:
		err = fmt.Errorf("nethttp: %w", ctx.Err())
	case delayed:
		d, err = x.askBlocks(ctx)
	}
	return d.Allowed, err
}

// explain marks the error of a decision, if there is one, as errLimit if the plan has a limit that is
// not valid. The Gate's error does not say so.
func explain(charges []core.Charge, err error) error {
	if err == nil {
		return nil
	}
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
