package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/plans"
)

// resultView says what became of an order.
type resultView struct {
	Text   string
	Failed bool
	Advice string
	Undo   url.Values // of a form that undoes it, or nil
	Verb   string     // of its button
	Back   string
}

// maxForm bounds the body of an order, in bytes.
const maxForm = 256 << 10

// act carries an order out.
func (a *Admin) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "The form cannot be read.", http.StatusBadRequest)
		return
	}
	o, err := a.read(r.PostForm)
	v := resultView{Back: back(&o)}
	if err == nil && (o.ID == "" || len(o.ID) > 64) {
		err = errors.New("the order has no id")
	}
	if err != nil {
		v.Text, v.Failed = sentence(err), true
		a.render(w, r, http.StatusBadRequest, "result", "Nothing has changed", v)
		return
	}
	if !a.done.first(o.ID) {
		v.Text = "This was done before. Nothing has changed again."
		a.render(w, r, http.StatusOK, "result", "Done before", v)
		return
	}
	o.Operator = operatorOf(r.Context())
	text, undo, err := a.carryOut(r.Context(), &o)
	o.Err = err
	a.tell(r.Context(), o.Event)
	status, title := http.StatusOK, "Done"
	if v.Text = text; err != nil {
		a.done.forget(o.ID)
		v.Text, v.Failed, v.Advice = sentence(err), true, inspect.Advice(err)
		status, title = http.StatusBadGateway, "This has failed"
		if errors.Is(err, core.ErrCharge) || errors.Is(err, core.ErrPeriod) || errors.As(err, new(unchanged)) {
			status, title = http.StatusConflict, "Nothing has changed"
		}
	} else if undo != nil {
		undo.ID, undo.Back = rand.Text(), o.Back
		v.Undo, v.Verb = undo.fields(), "Undo: "+ops[undo.Op].undo
	}
	a.render(w, r, status, "result", title, v)
}

// unchanged is the error of an order that changes nothing.
type unchanged struct{ error }

// heeded returns why no program heeds a raise or a block, by the policies that programs state.
func (a *Admin) heeded(ctx context.Context, o *order) error {
	if o.Op != OpRaise && o.Op != OpBlock {
		return nil
	}
	stated, err := a.inspector.Stated(ctx)
	if err != nil {
		return fmt.Errorf("redis cannot be asked: %w", err)
	}
	if stated == nil {
		return nil
	}
	if o.Op == OpRaise {
		err = inspect.HeedRaises(stated, o.Policy.Name())
	} else {
		err = inspect.HeedBlocks(stated, o.Policy.Name())
	}
	if err != nil {
		return unchanged{err}
	}
	return nil
}

// words fills in the places of a text about an order.
func (a *Admin) words(o *order, text string) string {
	at := ""
	if o.Key != (core.Key{}) {
		at = a.name(o.Key)
	}
	return o.words(text, at)
}

// carryOut carries an order out. It says what was done, and returns the order that undoes it, or nil.
func (a *Admin) carryOut(ctx context.Context, o *order) (text string, undo *order, err error) {
	if err := a.heeded(ctx, o); err != nil {
		return "", nil, err
	}
	text, undo = a.words(o, ops[o.Op].result), o.reverse()
	did := true
	switch o.Op {
	case OpReset:
		return a.reset(ctx, o, text, undo)
	case OpGive, OpTake:
		return a.give(ctx, o, undo)
	case OpRaise:
		did, err = a.inspector.Raise(ctx, o.Policy, o.Key, o.Units, o.Until, o.ID)
	case OpEndRaise:
		did, err = a.inspector.Raise(ctx, o.Policy, o.Key, -o.Units, o.Until, o.ID)
	case OpBlock:
		err = a.block(ctx, o)
		text = a.words(o, ops[o.Op].result) // until when is known now
	case OpUnblock:
		var rest time.Duration
		rest, err = a.inspector.Unblock(ctx, o.Policy, o.Key)
		did, undo.Until = rest > 0, time.Now().Add(rest)
	case OpEvict:
		var found int
		found, err = a.inspector.Semaphore(o.Slots).Evict(ctx, o.Key, o.Holder)
		did = found > 0
	case OpOverride, OpEndOverride:
		did, err = a.override(ctx, o, undo)
	}
	if err == nil && !did {
		err = unchanged{errors.New(ops[o.Op].nothing)}
	}
	return text, undo, err
}

// reverse returns the order that undoes this one, or nil.
func (o *order) reverse() *order {
	undo := *o
	if undo.Op = ops[o.Op].reverse; undo.Op == 0 {
		return nil
	}
	return &undo
}

func (a *Admin) reset(ctx context.Context, o *order, text string, undo *order) (string, *order, error) {
	before, err := a.inspector.Limit(ctx, o.Policy, o.Key)
	if err != nil {
		return "", nil, err
	}
	if err := a.inspector.Reset(ctx, o.Policy, o.Key); err != nil {
		return "", nil, err
	}
	undo.Units = before.Result.Used - before.Result.Held
	if undo.Units <= 0 || !inspect.Adjustable(before.Algorithm) {
		undo = nil
	}
	return fmt.Sprintf("%s Before it had used %s.", text, inspect.Number(before.Result.Used)), undo, nil
}

func (a *Admin) give(ctx context.Context, o *order, undo *order) (string, *order, error) {
	units := o.Units
	if o.Op == OpTake {
		units = -units
	}
	given, err := a.inspector.Give(ctx, o.Policy, o.Key, units, o.ID)
	if err != nil {
		return "", nil, err
	}
	o.Units = max(given, -given) // what is recorded is what was done
	if undo.Units = o.Units; given == 0 {
		undo = nil
	}
	return inspect.Gave(a.name(o.Key), o.Policy, given), undo, nil
}

// block blocks a key until the order's time. If its block is to end later, that is the order's time then.
func (a *Admin) block(ctx context.Context, o *order) error {
	asked := time.Until(o.Until).Round(time.Second)
	if asked <= 0 {
		return fmt.Errorf("the block would have ended: %w", core.ErrPeriod)
	}
	rest, err := a.inspector.Block(ctx, o.Policy, o.Key, asked)
	if rest > asked {
		o.Until = time.Now().Add(rest)
	}
	return err
}

// override sets or removes the override of a tenant, and reports whether there was one to remove. It makes
// undo the order that brings back the one before.
func (a *Admin) override(ctx context.Context, o, undo *order) (did bool, err error) {
	before, is, err := a.cfg.Plans.Override(ctx, o.Tenant)
	if err != nil {
		return false, err
	}
	if undo.Op, undo.Override = OpEndOverride, ""; is {
		text, _ := before.MarshalText() // it comes from Redis as such
		undo.Op, undo.Override = OpOverride, string(text)
	}
	if o.Op == OpEndOverride {
		return a.cfg.Plans.DeleteOverride(ctx, o.Tenant)
	}
	var after plans.Override
	if err := after.UnmarshalText([]byte(o.Override)); err != nil {
		return false, err
	}
	return true, a.cfg.Plans.SetOverride(ctx, o.Tenant, after)
}

// done remembers the ids of the last orders, so that a form that is sent twice to this process counts once.
// Other processes know only the ids of adjustments, which Redis has.
type done struct {
	mu  sync.Mutex
	ids []string
}

const maxDone = 1024

// first reports whether an id is new, and remembers it.
func (d *done) first(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.ids, id) {
		return false
	}
	if len(d.ids) == maxDone {
		d.ids = slices.Delete(d.ids, 0, 1)
	}
	d.ids = append(d.ids, id)
	return true
}

// forget forgets an id whose order has failed.
func (d *done) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ids = slices.DeleteFunc(d.ids, func(one string) bool { return one == id })
}
