package core

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/enum"
)

// Event is what happened in a Gate, or in a package that uses one. Each family of events is a
// struct of the package that it belongs to. Config.Observe receives a pointer to it:
//
//	switch e := e.(type) {
//	case *core.DecisionEvent:
//		log.Println(e.Op, e.Decision.Allowed, e.Err)
//	case *core.ServerEvent:
//		log.Println(e.Op, e.Node, e.Err)
//	}
//
// An Event, its Decision and its slices are valid until Observe returns, because frequent events
// are used again. Copy what is to be kept.
type Event interface {
	// EventName returns what happened in lower-case words, such as "decide". There are few names,
	// so they can be labels of a metric.
	EventName() string
}

// Op is what an event of this package reports: an operation of a caller, or of the Gate.
type Op uint8

// The operations.
const (
	// OpDecide, OpPeek, OpSpendUpTo and OpReserve are those of a DecisionEvent. OpDecide is a
	// Decide, Charge or Allow, or the charges of an Admit. OpReserve is a Reserve, or one attempt
	// of Limiter.Wait.
	OpDecide Op = iota + 1
	OpPeek
	OpSpendUpTo
	OpReserve
	// OpSettle, OpCancel, OpHoldExpired and OpRefundFailed are those of a ReservationEvent. A hold
	// has expired when a Settle or a renewal comes after PolicyConfig.Hold: what was spent does not
	// count from then until Settle. A refund fails when charges of a denied request cannot be given
	// back.
	OpSettle
	OpCancel
	OpHoldExpired
	OpRefundFailed
	// OpAdjust, OpRaiseUsed, OpLedger, OpBlock, OpForget and OpReset are those of a KeyEvent.
	// OpLedger is a call of PolicyConfig.Ledger. OpBlock and OpForget are those of a Blocklist.
	OpAdjust
	OpRaiseUsed
	OpLedger
	OpBlock
	OpForget
	OpReset
	// OpScriptMissing, OpCircuitOpened, OpCircuitClosed and OpOverload are those of a ServerEvent.
	// Redis did not know a script, and was sent it; a server failed, and is not asked for a while;
	// it answers again, or the Gate was closed meanwhile; calls ended as ErrOverloaded, which is
	// reported at most once a second.
	OpScriptMissing
	OpCircuitOpened
	OpCircuitClosed
	OpOverload
)

var ops = [...]string{
	"none", "decide", "peek", "spend up to", "reserve",
	"settle", "cancel", "hold expired", "refund failed", "adjust", "raise used", "ledger",
	"block", "forget", "reset",
	"script missing", "circuit opened", "circuit closed", "overload",
}

// String returns the operation in lower-case words.
func (o Op) String() string { return enum.Name(ops[:], int(o)) }

// DecisionEvent is the decision on the charges of one request.
type DecisionEvent struct {
	Op Op
	// Decision denies if there is an error, and may have no results then.
	Decision Decision
	// Charges are what was decided on, one for each result of the Decision.
	Charges []Charge
	// Err is the error that the caller received, or why a failure mode decided. A denial is no
	// error.
	Err  error
	Took time.Duration
}

// EventName returns the name of the operation.
func (e *DecisionEvent) EventName() string { return e.Op.String() }

// ReservationEvent is a Settle or Cancel of a Reservation, or what became of one.
type ReservationEvent struct {
	Op Op
	// Err says that the units may stay spent.
	Err  error
	Took time.Duration // 0 if the event is no call
}

// EventName returns the name of the operation.
func (e *ReservationEvent) EventName() string { return e.Op.String() }

// KeyEvent is a change of what one key has used, other than by a decision: by an operator, by a
// correction, or by a ledger. A Reset of several charges is one KeyEvent for each.
type KeyEvent struct {
	Op     Op
	Policy *Policy
	Key    Key
	// Err says that nothing has changed, or that it is unknown, or that a ledger has no figure.
	Err  error
	Took time.Duration
}

// EventName returns the name of the operation.
func (e *KeyEvent) EventName() string { return e.Op.String() }

// ThresholdEvent reports that a key has reached one of PolicyConfig.Thresholds.
type ThresholdEvent struct {
	Policy  *Policy
	Key     Key
	Percent int // one of PolicyConfig.Thresholds
	// Used and Limit are those of the decision that found the key at the threshold. Used includes
	// what running requests have reserved.
	Used, Limit int64
}

// EventName returns "threshold".
func (e *ThresholdEvent) EventName() string { return "threshold" }

// ServerEvent is what a Gate has learned about a server of Redis.
type ServerEvent struct {
	Op Op
	// Node is the server's address. It is empty if the client does not tell it.
	Node string
	Err  error
}

// EventName returns the name of the operation.
func (e *ServerEvent) EventName() string { return e.Op.String() }

// decisionEvents makes the events of decisions free of allocations.
var decisionEvents = sync.Pool{New: func() any { return new(DecisionEvent) }}

var opOf = [...]Op{
	algorithm.Decide: OpDecide, algorithm.Peek: OpPeek, algorithm.AtMost: OpSpendUpTo,
	algorithm.Reserve: OpReserve,
}

// tellDecision tells the observer of a decision on charges. It copies both, so that neither is on
// the heap.
func (g *Gate) tellDecision(
	ctx context.Context, op algorithm.Operation, d *Decision, charges []Charge, err error,
	start time.Time,
) {
	if g.cfg.Observe == nil {
		return
	}
	if err == nil {
		err = d.Cause
	}
	e := decisionEvents.Get().(*DecisionEvent)
	*e = DecisionEvent{
		Op: opOf[op], Decision: *d, Charges: append(e.Charges, charges...), Err: err,
		Took: time.Since(start),
	}
	g.cfg.Observe(ctx, e)
	clear(e.Charges)
	*e = DecisionEvent{Charges: e.Charges[:0]}
	decisionEvents.Put(e)
}

// tellReservation tells the observer of a reservation.
func (g *Gate) tellReservation(ctx context.Context, op Op, err error, took time.Duration) {
	if g.cfg.Observe != nil {
		g.cfg.Observe(ctx, &ReservationEvent{Op: op, Err: err, Took: took})
	}
}

// tellKey tells the observer of a change of a key under a policy.
func (g *Gate) tellKey(
	ctx context.Context, op Op, p *Policy, key Key, err error, start time.Time,
) {
	if g.cfg.Observe != nil {
		g.cfg.Observe(ctx, &KeyEvent{Op: op, Policy: p, Key: key, Err: err, Took: time.Since(start)})
	}
}

// tell tells the observer of a rare event. Callers make the event only if the Gate has an observer.
func (g *Gate) tell(ctx context.Context, e Event) {
	if g.cfg.Observe != nil {
		g.cfg.Observe(ctx, e)
	}
}
