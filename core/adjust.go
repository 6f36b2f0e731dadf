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
	// ID identifies the adjustment of the key under the policy, such as the number of an invoice.
	// It has 1 to 128 bytes. An adjustment is applied once however often it is sent, in all
	// processes, whatever else it says, and once for each count: a limit of another algorithm, or
	// a Calendar of another unit, zone or anchor, has a count of its own, which knows no ID of
	// others. An id is remembered for 366 days, or as long as the quota's period or the raise
	// lasts if that is longer. Set At, so that what is sent again after that is an error.
	ID string
	// Policy, Key and Limit are as in a Charge.
	Policy *Policy
	Key    Key
	Limit  Algorithm
	// Units is added to what is used, as a PolicyConfig.Ledger knows it. If it is negative, units
	// are given back, at most those that are used, and what is owed first. If it is positive, it is
	// charged whether it fits or not, as Reservation.Settle charges a debt. It is between -10^15 and
	// 10^15.
	Units int64
	// Raise is by how many units the limit is raised until that time, in each period: a top-up, or
	// an increase for a busy month. It is at most 10^15 together with all raises of the key. If it is
	// negative, that many units of earlier raises with exactly that Until are taken back, at most all
	// of them. It needs PolicyConfig.Raisable.
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
	g.tellKey(ctx, OpAdjust, a.Policy, a.Key, err, start)
	return err == nil && verdict != algorithm.AdjustedBefore, err
}

// apply applies an adjustment, after the key is seeded if it has a ledger.
func (g *Gate) apply(ctx context.Context, a Adjustment) (verdict int64, err error) {
	if err := a.fault(); err != nil {
		return 0, err
	}
	k := algorithm.Adjustment{
		ID: a.ID, Keep: adjustmentKept.Microseconds(),
		Units: a.Units, Raise: a.Raise, Ends: a.Until.UnixMicro(),
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
	if err == nil {
		err = a.refusal(verdict)
	}
	return verdict, err
}

// fault returns what makes the adjustment unusable.
func (a *Adjustment) fault() error {
	const most = algorithm.MaxCount
	switch {
	case a.Policy == nil || a.Policy.own == nil:
		return a.bad("Policy is missing, or not made by NewPolicy")
	case a.Key.in.Outer == 0:
		return a.bad("Key is missing")
	case a.ID == "" || len(a.ID) > maxAdjustmentID:
		return a.bad("ID has %d bytes: it must have 1 to %d", len(a.ID), maxAdjustmentID)
	case a.Units < -most || a.Units > most:
		return a.bad("Units is %d: it must be between -10^15 and 10^15", a.Units)
	case a.Raise < -most || a.Raise > most:
		return a.bad("Raise is %d: it must be between -10^15 and 10^15", a.Raise)
	case a.Units == 0 && a.Raise == 0:
		return a.bad("Units and Raise are 0: nothing would change")
	}
	return a.raiseFault()
}

// raiseFault returns what makes the raise unusable.
func (a *Adjustment) raiseFault() error {
	switch {
	case a.Raise == 0 && !a.Until.IsZero():
		return a.bad("Until is %v, and Raise is 0", a.Until)
	case a.Raise == 0:
		return nil
	case !a.Policy.cfg.Raisable:
		return a.bad("Raise is %d, and the policy %s is not Raisable", a.Raise, a.Policy.cfg.Name)
	case a.Until.IsZero() || time.Until(a.Until) > algorithm.Longest:
		return a.bad("Until is %v: it must be set with Raise, and within 100 years", a.Until)
	}
	return nil
}

// refusal returns why the store has not applied the adjustment, or nil.
func (a *Adjustment) refusal(verdict int64) error {
	switch verdict {
	case algorithm.Unseeded:
		return ErrLedger
	case algorithm.RaiseEnded:
		return fmt.Errorf("%w: Adjustment.Until is %v", ErrPeriod, a.Until)
	case algorithm.RaisedTooFar:
		return a.bad("Raise is %d: all raises of the key would exceed 10^15", a.Raise)
	}
	return nil
}

func (a *Adjustment) bad(format string, args ...any) error {
	return fmt.Errorf("%w: Adjustment.%s", ErrCharge, fmt.Sprintf(format, args...))
}

// RaiseUsed raises what is used of the quota of c to at least that many units, whatever the Cost of
// c, and returns how many it added. Of several calls, in any number of processes, the largest
// figure decides, so that a ledger's figure may be sent again and again, such as after Redis has
// lost its data. The units are charged whether they fit or not, and the next period owes nothing
// for them. A figure below 0 or above 10^15 is an error. RaiseUsed seeds a key as
// PolicyConfig.Ledger does: the ledger is not asked for it again in the period. See [Adjustment]
// for what a quota is.
//
// If at is not zero, it is the time for which the figure was read: in another period of the quota
// the error wraps ErrPeriod. Other errors are those of Adjust.
func (g *Gate) RaiseUsed(
	ctx context.Context, c Charge, used int64, at time.Time,
) (added int64, err error) {
	start := time.Now()
	if used < 0 || used > algorithm.MaxCount {
		err = fmt.Errorf("%w: RaiseUsed to %d: it must be between 0 and 10^15", ErrCharge, used)
	} else {
		k := algorithm.Adjustment{Units: used}
		if c.Policy != nil && c.Policy.cfg.Ledger != nil {
			k.Seeds = algorithm.SeedsAgain
		}
		added, err = g.adjust(ctx, algorithm.AtLeast, c, at, k)
	}
	g.tellKey(ctx, OpRaiseUsed, c.Policy, c.Key, err, start)
	return added, err
}

// adjust sends an adjustment of one quota, for the period at that time if it is not zero.
func (g *Gate) adjust(
	ctx context.Context, op algorithm.Operation, asked Charge, at time.Time, k algorithm.Adjustment,
) (verdict int64, err error) {
	p := asked.Policy
	from, err := g.limitOf(asked)
	if err != nil {
		return 0, err
	}
	quota := algorithm.QuotaOf(from.current())
	if quota == nil {
		return 0, fmt.Errorf("%w: the limit of %s under %s is no quota: %s",
			ErrCharge, asked.Key, p.cfg.Name, whatQuotas)
	}
	if quota, err = forPeriod(&k, quota, op, at); err != nil {
		return 0, err
	}
	c := chargeOn(asked.Key, from, quota)
	c.Adjustment = &k
	kind := from.kind
	kind.Adjusts = op != algorithm.AtLeast || p.adjusts()
	kind.Seeds = op == algorithm.Adjust && k.Units != 0 && p.cfg.Ledger != nil
	c.Kind = &kind
	requests := []request.Request{{Terms: algorithm.Terms{Op: op}, Charges: []*request.Charge{&c.Charge}}}
	err = g.send(g.bound(ctx), requests)
	if errors.Is(err, request.ErrPeriod) {
		err = outside(op, at)
	}
	return requests[0].Verdict, err
}

// limitOf returns the limit of a charge that is changed by hand.
func (g *Gate) limitOf(asked Charge) (*limit, error) {
	if g.isClosed() {
		return nil, ErrClosed
	}
	if err := check([]Charge{asked}); err != nil {
		return nil, err
	}
	return asked.Policy.limitOf(asked.Limit)
}

// forPeriod bounds an adjustment to the period at a time, if that is not zero, and returns the
// quota as it holds then.
func forPeriod(
	k *algorithm.Adjustment, quota *algorithm.FixedWindow, op algorithm.Operation, at time.Time,
) (*algorithm.FixedWindow, error) {
	window := quota.Window()
	if window == Never {
		k.Keep = algorithm.Longest.Microseconds()
		return quota, nil
	}
	if !at.IsZero() {
		if at.Unix() < 0 || at.Year() > 9999 { // such as a zero time of another zone
			return nil, outside(op, at)
		}
		quota, k.From, k.Until = algorithm.PeriodOf(quota, at.UnixMicro())
		window = quota.Window()
	}
	k.Keep = max(k.Keep, window.Microseconds())
	return quota, nil
}

// outside is the error of an adjustment for another period.
func outside(op algorithm.Operation, at time.Time) error {
	field := "Adjustment.At"
	if op == algorithm.AtLeast {
		field = "the time of RaiseUsed"
	}
	return fmt.Errorf("%w: %s is %v", ErrPeriod, field, at)
}

// Give gives units of a TokenBucket, a LeakyBucket or a FixedWindow back, whoever spent them, at most
// those that are used, or charges them if the number is negative. A quota is charged by Gate.Adjust
// alone. It returns by how many units less is used then. One step peeks, changes and peeks again, so
// that it knows what it gave.
func (inside) Give(
	ctx context.Context, g *Gate, asked Charge, units int64,
) (given int64, err error) {
	start := time.Now()
	given, err = g.giveTo(ctx, asked, units)
	g.tellKey(ctx, OpAdjust, asked.Policy, asked.Key, err, start)
	return given, err
}

func (g *Gate) giveTo(ctx context.Context, asked Charge, units int64) (given int64, err error) {
	from, err := g.limitOf(asked)
	if err != nil {
		return 0, err
	}
	limit := from.current()
	switch limit.(type) {
	case *algorithm.TokenBucket, *algorithm.FixedWindow:
	default:
		return 0, fmt.Errorf("%w: units under %s cannot be given back: its limit is no TokenBucket, "+
			"LeakyBucket, FixedWindow or Calendar", ErrCharge, asked.Policy.cfg.Name)
	}
	if units < 0 && algorithm.QuotaOf(limit) != nil { // Adjust knows the raises, above which a debt begins
		return 0, fmt.Errorf("%w: units of the quota %s are charged by Adjust", ErrCharge, asked.Policy.cfg.Name)
	}
	var ops []request.Request
	step := func(op algorithm.Operation, cost algorithm.Cost) *request.Charge {
		c := chargeOn(asked.Key, from, limit)
		c.Kind = c.Bare() // what is held does not change
		c.Cost = cost
		c.Reply = []int64{algorithm.AnyReceipt}
		ops = append(ops, request.Request{Terms: algorithm.Terms{Op: op}, Charges: []*request.Charge{&c.Charge}})
		return &c.Charge
	}
	change := algorithm.Force
	if units > 0 {
		change = algorithm.Give
	}
	before := step(algorithm.Peek, algorithm.Cost{})
	if units != 0 {
		step(change, limit.Cost(max(units, -units)))
	}
	after := step(algorithm.Peek, algorithm.Cost{})
	if err := g.send(g.bound(ctx), ops); err != nil {
		return 0, err
	}
	used := func(c *request.Charge) int64 {
		return c.Limit.Read(c.Reply, algorithm.Cost{}, 0).Used
	}
	return used(before) - used(after), nil
}
