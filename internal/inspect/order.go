package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/plans"
)

// Op is what an operator does.
type Op uint8

// The operations are those of package admin.
const (
	OpReset Op = iota + 1
	OpGive
	OpTake
	OpRaise
	OpEndRaise
	OpBlock
	OpUnblock
	OpEvict
	OpOverride
	OpEndOverride
)

// Operation says what an Op does. Its texts have places, such as {at}, for what stands in an order;
// see Order.Words.
type Operation struct {
	Name     string // in forms and events
	Verb     string // of the button that confirms it
	Question string // that the button answers; empty if nobody is asked
	Note     string // beside the question
	Undo     string // of the button that undoes another one by it

	result  string // what was done
	nothing string // why nothing has changed, if nothing was there to change
	reverse Op     // undoes it, or 0
	heed    func(all []Stated, policy string) error
}

// Operations are all of them, by their Op.
var Operations = [...]Operation{
	{Name: "none"},
	OpReset: {
		Name: "reset", Verb: "Reset", Question: "Forget what {at} has spent under {policy}?",
		result:  "{at} has spent nothing under {policy}. Before it had used {n}.",
		reverse: OpTake,
	},
	OpGive: {
		Name: "give", Verb: "Give {n} back", Question: "Give {at} {n} {unit} of {policy} back?",
		Note:    "At most what is used comes back.",
		result:  "{at} got {n} of {policy} back.",
		nothing: "nothing was used, or this was done before, so nothing came back",
		reverse: OpTake, Undo: "give it back",
	},
	OpTake: {
		Name: "take", Verb: "Charge {n}", Question: "Charge {at} {n} {unit} of {policy}?",
		result:  "{at} was charged {n} of {policy}.",
		nothing: "this was done before",
		reverse: OpGive, Undo: "charge it again",
	},
	OpRaise: {
		Name: "raise", Verb: "Raise by {n}",
		Question: "Raise the limit of {at} under {policy} by {n} {unit} until {until}?",
		result:   "The limit of {at} under {policy} is raised by {n} until {until}.",
		nothing:  "this was done before",
		reverse:  OpEndRaise, Undo: "raise it again", heed: HeedRaises,
	},
	OpEndRaise: {
		Name: "end raise", result: "The raise of {at} under {policy} by {n} has ended.",
		nothing: "this was done before",
		reverse: OpRaise, Undo: "end the raise",
	},
	OpBlock: {
		Name: "block", Verb: "Block", Question: "Block {at} under {policy} until {until}?",
		Note: "It forgets the strikes of the key.", result: "{at} is blocked under {policy} until {until}.",
		reverse: OpUnblock, Undo: "block it again", heed: HeedBlocks,
	},
	OpUnblock: {
		Name: "unblock", Verb: "Unblock", Question: "Unblock {at} under {policy}?",
		Note: "It forgives: the next block is as short as the first. Other processes remember a " +
			"block for up to a second.",
		result: "{at} is not blocked under {policy}.", nothing: "the key was not blocked any more",
		reverse: OpBlock, Undo: "unblock",
	},
	OpEvict: {
		Name: "evict", Verb: "Evict", Question: "Take {n} of the slots of {at} at {slots} away?",
		result:  "{slots} has evicted {n} of its holders and waiters.",
		nothing: "the holder or waiter has left: nobody was evicted",
	},
	OpOverride: {
		Name: "override", Verb: "Set the override", Question: "Set this override of {tenant}?",
		result:  "The override of {tenant} is set. Every process obeys it within a second.",
		reverse: OpEndOverride, Undo: "set the override before",
	},
	OpEndOverride: {
		Name: "end override", Verb: "Remove the override", Question: "Remove the override of {tenant}?",
		Note:   "What was spent stays counted: keys may have used more than their limits then.",
		result: "{tenant} has no override.", nothing: "the tenant had no override any more",
		reverse: OpOverride, Undo: "remove the override",
	},
}

// OpOf returns the operation of a name, or 0.
func OpOf(name string) Op {
	for o := OpReset; int(o) < len(Operations); o++ {
		if Operations[o].Name == name {
			return o
		}
	}
	return 0
}

// Order is a change that an operator asks for.
type Order struct {
	Op     Op
	ID     string // an adjustment of a quota is applied once for each
	Key    core.Key
	Policy *core.Policy
	// Units are to come back, to be charged, or added to the limit. They are the number of Holders.
	Units    int64
	Until    time.Time // when a raise or a block ends
	Slots    string    // the name of the semaphore of an eviction
	Holders  []string  // the ids of those that are evicted
	Tenant   string
	Override string // in the form of a file
}

// Words fills in the places of a text. {at} is what the key is called.
func (o *Order) Words(text, at string) string {
	var policy, unit string
	if o.Policy != nil {
		policy, unit = o.Policy.Name(), o.Policy.Unit().String()
	}
	return strings.NewReplacer("{at}", at, "{policy}", policy, "{unit}", unit, "{n}", Number(o.Units),
		"{until}", Clock(o.Until), "{slots}", o.Slots, "{tenant}", o.Tenant).Replace(text)
}

// Unchanged is the error of an order that changes nothing.
type Unchanged struct{ error }

// Heed returns why no program heeds an order, by the policies that programs state.
func (i *Inspector) Heed(ctx context.Context, o *Order) error {
	heed := Operations[o.Op].heed
	if heed == nil {
		return nil
	}
	all, err := i.Stated(ctx)
	if err != nil {
		return fmt.Errorf("redis cannot be asked: %w", err)
	}
	if all == nil {
		return nil
	}
	if err := heed(all, o.Policy.Name()); err != nil {
		return Unchanged{err}
	}
	return nil
}

// Do carries an order out, and makes its Units and its Until what was done. It says that with the
// key as at, and returns the order that undoes it, or nil.
func (i *Inspector) Do(ctx context.Context, o *Order, at string) (text string, undo *Order, err error) {
	op, back, did := &Operations[o.Op], *o, true
	back.Op = op.reverse
	units := o.Units
	if o.Op == OpTake || o.Op == OpEndRaise {
		units = -units
	}
	switch o.Op {
	case OpReset:
		err = i.reset(ctx, o, &back)
	case OpGive, OpTake:
		if units, err = i.Give(ctx, o.Policy, o.Key, units, o.ID); err == nil { // otherwise it may have counted
			o.Units, did = max(units, -units), units != 0
		}
		back.Units = o.Units
	case OpRaise, OpEndRaise:
		did, err = i.Raise(ctx, o.Policy, o.Key, units, o.Until, o.ID)
	case OpBlock:
		err = i.block(ctx, o)
	case OpUnblock:
		var rest time.Duration
		rest, err = i.Unblock(ctx, o.Policy, o.Key)
		did, back.Until = rest > 0, time.Now().Add(rest)
	case OpEvict:
		var found int
		found, err = i.Semaphore(o.Slots).Evict(ctx, o.Key, o.Holders...)
		o.Units, did = int64(found), found > 0
	case OpOverride, OpEndOverride:
		did, err = i.override(ctx, o, &back)
	}
	switch {
	case err != nil:
		return "", nil, err
	case !did:
		return "", nil, Unchanged{errors.New(o.Words(op.nothing, at))}
	case back.Op != 0:
		undo = &back
	}
	return o.Words(op.result, at), undo, nil
}

// reset makes undo the order that charges again what comes back, if that is possible.
func (i *Inspector) reset(ctx context.Context, o, undo *Order) error {
	before, err := i.Limit(ctx, o.Policy, o.Key)
	if err != nil {
		return err
	}
	o.Units = before.Result.Used
	undo.Units = o.Units - before.Result.Held
	if undo.Units <= 0 || !Adjustable(before.Algorithm) {
		undo.Op = 0
	}
	return i.Reset(ctx, o.Policy, o.Key)
}

// block blocks a key until the order's time. If its block is to end later, that is the order's time
// then.
func (i *Inspector) block(ctx context.Context, o *Order) error {
	asked := (time.Until(o.Until) + time.Second - 1).Truncate(time.Second)
	if asked <= 0 {
		return fmt.Errorf("the block would have ended: %w", core.ErrPeriod)
	}
	rest, err := i.Block(ctx, o.Policy, o.Key, asked)
	if rest > asked {
		o.Until = time.Now().Add(rest)
	}
	return err
}

// override sets or removes the override of a tenant, and reports whether there was one to remove.
// It makes undo the order that brings back the one before.
func (i *Inspector) override(ctx context.Context, o, undo *Order) (did bool, err error) {
	book := i.cfg.Plans
	before, is, err := book.Override(ctx, o.Tenant)
	if err != nil {
		return false, err
	}
	if undo.Op, undo.Override = OpEndOverride, ""; is {
		text, _ := before.MarshalText() // it comes from Redis as such
		undo.Op, undo.Override = OpOverride, string(text)
	}
	if o.Op == OpEndOverride {
		return book.DeleteOverride(ctx, o.Tenant)
	}
	var after plans.Override
	if err := after.UnmarshalText([]byte(o.Override)); err != nil {
		return false, err
	}
	return true, book.SetOverride(ctx, o.Tenant, after)
}
