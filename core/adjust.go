package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// ErrPeriod is wrapped by the errors of RaiseUsed and Adjust that are meant for another period than
// the present one, or for a raise that has ended. Nothing has changed then.
var ErrPeriod = errors.New("core: the period has passed or has not begun")

// Adjustment corrects what is used of a quota, raises its limit for a time, or both. A quota is a
// limit that counts units: a [Calendar], a [FixedWindow] that is not FromFirst, or a [TokenBucket]
// with Rate 0.
type Adjustment struct {
	// ID identifies the adjustment among those of the key under the policy, such as the number of
	// an invoice. It has 1 to 128 bytes. An adjustment is applied once however often it is sent, in
	// all processes, whatever else it says. An id is remembered for 366 days, or as long as the
	// quota's period or the raise lasts if that is longer. Set At, so that what is sent again after
	// that is an error.
	ID string
	// Policy, Key and Limit are those of a Charge.
	Policy *Policy
	Key    Key
	Limit  Algorithm
	// Units is added to what is used, as a PolicyConfig.Ledger knows it. If it is negative, units
	// are given back, at most those that are used. If it is positive, it is charged whether it fits
	// or not, until twice the limit is used, as Reservation.Settle charges a debt. It is between
	// -10^15 and 10^15.
	Units int64
	// Raise is by how many units the limit is raised until that time, in each period: a top-up, or
	// an increase for a busy month. It is at most 10^15 together with all raises of the key. It
	// needs PolicyConfig.Raisable.
	Raise int64
	Until time.Time
	// At, if not zero, is a time in the period that the adjustment is for. In another one the error
	// wraps ErrPeriod. It means nothing for a TokenBucket.
	At time.Time
}

// whatQuotas says in errors what a quota is.
const whatQuotas = "it must be a Calendar, a FixedWindow that is not FromFirst, or a TokenBucket " +
	"with Rate 0"

const (
	maxAdjustmentID = 128
	adjustmentKept  = 366 * 24 * time.Hour // or longer than any period
)

// Adjust applies an adjustment, and reports whether it did: it does nothing if one of that ID has
// been applied before. The next decisions and Peeks show it: Result.Used has the correction, and
// Result.Limit the raise. Other processes may answer a denial from memory for up to a second.
//
// The error wraps ErrCharge if the adjustment is not usable, and ErrPeriod; then nothing has
// changed. Other errors are those of a Redis that does not answer, whatever the failure mode: then
// it may have been applied, so send it again.
func (g *Gate) Adjust(ctx context.Context, a Adjustment) (applied bool, err error) {
	start := time.Now()
	verdict, err := g.apply(ctx, a)
	g.tellQuota(ctx, OpAdjust, Charge{Policy: a.Policy, Key: a.Key}, err, start)
	return err == nil && verdict != algorithm.AdjustedBefore, err
}

func (g *Gate) apply(ctx context.Context, a Adjustment) (verdict int64, err error) {
	const most = algorithm.MaxCount
	bad := func(format string, args ...any) (int64, error) {
		return 0, fmt.Errorf("%w: Adjustment."+format, append([]any{ErrCharge}, args...)...)
	}
	ends := a.Until.UnixMicro()
	switch {
	case a.Policy == nil || a.Policy.own == nil:
		return bad("Policy is missing, or not made by NewPolicy")
	case a.Key.outer == 0:
		return bad("Key is missing")
	case a.ID == "" || len(a.ID) > maxAdjustmentID:
		return bad("ID has %d bytes: it must have 1 to %d", len(a.ID), maxAdjustmentID)
	case a.Units < -most || a.Units > most:
		return bad("Units is %d: it must be between -10^15 and 10^15", a.Units)
	case a.Raise < 0 || a.Raise > most:
		return bad("Raise is %d: it must be between 0 and 10^15", a.Raise)
	case a.Units == 0 && a.Raise == 0:
		return bad("Units and Raise are 0: nothing would change")
	case a.Raise > 0 && !a.Policy.raisable:
		return bad("Raise is %d, and the policy %s is not Raisable", a.Raise, a.Policy.name)
	case a.Raise > 0 && (a.Until.IsZero() || time.Until(a.Until) > algorithm.Longest):
		return bad("Until is %v: it must be set with Raise, and within 100 years", a.Until)
	case a.Raise == 0 && !a.Until.IsZero():
		return bad("Until is %v, and Raise is 0", a.Until)
	}
	k := algorithm.Adjustment{
		ID: a.ID, Keep: adjustmentKept.Microseconds(), Units: a.Units, Raise: a.Raise, Ends: ends,
	}
	c := Charge{Policy: a.Policy, Key: a.Key, Limit: a.Limit}
	verdict, err = g.adjust(ctx, algorithm.Adjust, c, a.At, k)
	for range ledgerTries {
		if err != nil || verdict != algorithm.Unseeded {
			break
		}
		if err = g.seedKey(ctx, c); err == nil {
			verdict, err = g.adjust(ctx, algorithm.Adjust, c, a.At, k)
		}
	}
	switch {
	case err == nil && verdict == algorithm.Unseeded:
		err = ErrLedger
	case err == nil && verdict == algorithm.RaiseEnded:
		err = fmt.Errorf("%w: Adjustment.Until is %v", ErrPeriod, a.Until)
	case err == nil && verdict == algorithm.RaisedTooFar:
		_, err = bad("Raise is %d: all raises of the key would exceed 10^15", a.Raise)
	}
	return verdict, err
}

// RaiseUsed raises what is used of a quota to at least c.Cost, and returns how many units it added.
// Of several calls, in any number of processes, the largest Cost decides, so that a ledger's figure
// may be sent again and again, such as after Redis has lost its data. It is charged whether it fits
// or not, and the next period owes nothing for it. A Cost above 10^15 is an error. The figures of a
// PolicyConfig.Ledger are charged in this way, and RaiseUsed seeds a key as that does: the ledger is
// not asked for it again in the period. See [Adjustment] for what a quota is.
//
// If at is not zero, it is the time for which the figure was read: in another period of the quota
// the error wraps ErrPeriod. Other errors are those of Adjust.
func (g *Gate) RaiseUsed(ctx context.Context, c Charge, at time.Time) (added int64, err error) {
	start := time.Now()
	if c.Cost < 0 || c.Cost > algorithm.MaxCount {
		err = fmt.Errorf("%w: Charge.Cost of RaiseUsed is %d: it must be between 0 and 10^15",
			ErrCharge, c.Cost)
	} else {
		k := algorithm.Adjustment{
			Units: c.Cost, Seeds: c.Policy != nil && c.Policy.ledger != nil,
		}
		added, err = g.adjust(ctx, algorithm.AtLeast, c, at, k)
	}
	g.tellQuota(ctx, OpRaiseUsed, c, err, start)
	return added, err
}

// adjust sends an adjustment of one quota, for the period at that time if it is not zero.
func (g *Gate) adjust(
	ctx context.Context, op algorithm.Operation, asked Charge, at time.Time, k algorithm.Adjustment,
) (verdict int64, err error) {
	if g.isClosed() {
		return 0, ErrClosed
	}
	if err := check([]Charge{asked}); err != nil {
		return 0, err
	}
	p := asked.Policy
	from, err := p.limitOf(ctx, asked.Key, asked.Limit)
	if err != nil {
		return 0, err
	}
	quota := algorithm.QuotaOf(from.current())
	if quota == nil {
		return 0, fmt.Errorf("%w: the limit of %s under %s is no quota: %s",
			ErrCharge, asked.Key, p.name, whatQuotas)
	}
	outside := func() error {
		field := "Adjustment.At"
		if op == algorithm.AtLeast {
			field = "the time of RaiseUsed"
		}
		return fmt.Errorf("%w: %s is %v", ErrPeriod, field, at)
	}
	if !at.IsZero() && quota.Window() != Never {
		if at.Unix() < 0 || at.Year() > 9999 { // such as a zero time of another zone
			return 0, outside()
		}
		quota, k.From, k.Until = algorithm.PeriodOf(quota, at.UnixMicro())
	}
	k.Keep = max(k.Keep, quota.Window().Microseconds())
	if quota.Window() == Never {
		k.Keep = algorithm.Longest.Microseconds()
	}
	var c charge
	c.at(asked.Key, from)
	c.Limit, c.policy, c.Adjustment = quota, p, &k
	c.HoldFor = p.hold.Microseconds()
	c.Adjusts = op != algorithm.AtLeast || p.adjusts()
	c.Seeds = op == algorithm.Adjust && k.Units != 0 && p.ledger != nil
	requests := []request.Request{{Op: op, Charges: []*request.Charge{&c.Charge}}}
	err = g.send(g.bound(ctx), requests)
	if errors.Is(err, request.ErrPeriod) {
		err = outside()
	}
	return requests[0].Verdict, err
}
