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
	text, undo, err := "", (*order)(nil), a.heeded(r.Context(), &o)
	if err == nil {
		text, undo, err = a.carryOut(r.Context(), &o)
	}
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

// These are the errors of orders that find nothing to change.
var (
	errGone       = unchanged{errors.New("the holder has left: nobody had that slot any more")}
	errDone       = unchanged{errors.New("this was done before")}
	errNoOverride = unchanged{errors.New("the tenant had no override any more")}
	errNotBlocked = unchanged{errors.New("the key was not blocked any more")}
)

// carryOut carries an order out. It says what was done, and returns the order that undoes it, or nil.
func (a *Admin) carryOut(ctx context.Context, o *order) (text string, undo *order, err error) {
	at, n := "", inspect.Number(o.Units)
	if o.Key != (core.Key{}) {
		at = a.name(o.Key)
	}
	switch o.Op {
	case OpReset:
		return a.reset(ctx, o, at)
	case OpGive, OpTake:
		return a.give(ctx, o, at)
	case OpRaise, OpEndRaise:
		units, undoes, text := o.Units, OpEndRaise, fmt.Sprintf(
			"The limit of %s under %s is raised by %s until %s.", at, o.Policy.Name(), n, stamp(o.Until).Human)
		if o.Op == OpEndRaise {
			units, undoes = -units, OpRaise
			text = fmt.Sprintf("The raise of %s under %s by %s has ended.", at, o.Policy.Name(), n)
		}
		applied, err := a.inspector.Raise(ctx, o.Policy, o.Key, units, o.Until, o.ID)
		if err == nil && !applied {
			err = errDone
		}
		return text, o.reverse(undoes), err
	case OpBlock:
		rest := time.Until(o.Until).Round(time.Second)
		if rest <= 0 {
			return "", nil, fmt.Errorf("the block would have ended: %w", core.ErrPeriod)
		}
		text := fmt.Sprintf("%s is blocked under %s until %s.", at, o.Policy.Name(), stamp(o.Until).Human)
		return text, o.reverse(OpUnblock), a.inspector.Block(ctx, o.Policy, o.Key, rest)
	case OpUnblock:
		return a.unblock(ctx, o, at)
	case OpEvict:
		found, err := a.inspector.Semaphore(o.Slots).Evict(ctx, o.Key, o.Holder)
		if err == nil && found == 0 {
			err = errGone
		}
		return fmt.Sprintf("The slot of %s at %s was taken away.", at, o.Slots), nil, err
	}
	return a.override(ctx, o)
}

// reverse returns the order on the same key that undoes this one.
func (o *order) reverse(by Op) *order {
	undo := *o
	undo.Op = by
	return &undo
}

func (a *Admin) reset(ctx context.Context, o *order, at string) (string, *order, error) {
	before, err := a.inspector.Limit(ctx, o.Policy, o.Key)
	if err != nil {
		return "", nil, err
	}
	if err := a.inspector.Reset(ctx, o.Policy, o.Key); err != nil {
		return "", nil, err
	}
	used := before.Result.Used - before.Result.Held
	text := fmt.Sprintf("%s has spent nothing under %s. Before it had used %s.",
		at, o.Policy.Name(), inspect.Number(before.Result.Used))
	if used <= 0 || !inspect.Adjustable(before.Algorithm) {
		return text, nil, nil
	}
	undo := o.reverse(OpTake)
	undo.Units = used
	return text, undo, nil
}

func (a *Admin) give(ctx context.Context, o *order, at string) (string, *order, error) {
	units, undoes := o.Units, OpTake
	if o.Op == OpTake {
		units, undoes = -units, OpGive
	}
	given, err := a.inspector.Give(ctx, o.Policy, o.Key, units, o.ID)
	if err != nil {
		return "", nil, err
	}
	o.Units = max(given, -given) // what is recorded is what was done
	text := inspect.Gave(at, o.Policy, given)
	if given == 0 {
		return text, nil, nil
	}
	return text, o.reverse(undoes), nil
}

func (a *Admin) unblock(ctx context.Context, o *order, at string) (string, *order, error) {
	rest, err := a.inspector.Unblock(ctx, o.Policy, o.Key)
	if err == nil && rest == 0 {
		err = errNotBlocked
	}
	undo := o.reverse(OpBlock)
	undo.Until = time.Now().Add(rest)
	return fmt.Sprintf("%s is not blocked under %s.", at, o.Policy.Name()), undo, err
}

// override sets or removes the override of a tenant.
func (a *Admin) override(ctx context.Context, o *order) (string, *order, error) {
	before, is, err := a.cfg.Plans.Override(ctx, o.Tenant)
	if err != nil {
		return "", nil, err
	}
	undo := o.reverse(OpEndOverride)
	if undo.Override = ""; is {
		text, _ := before.MarshalText() // it comes from Redis as such
		undo.Op, undo.Override = OpOverride, string(text)
	}
	if o.Op == OpEndOverride {
		was, err := a.cfg.Plans.DeleteOverride(ctx, o.Tenant)
		if err == nil && !was {
			err = errNoOverride
		}
		return fmt.Sprintf("%s has no override.", o.Tenant), undo, err
	}
	var after plans.Override
	if err := after.UnmarshalText([]byte(o.Override)); err != nil {
		return "", nil, err
	}
	text := fmt.Sprintf("The override of %s is set. Every process obeys it within a second.", o.Tenant)
	return text, undo, a.cfg.Plans.SetOverride(ctx, o.Tenant, after)
}

// done remembers the ids of the last orders, so that a form that is sent twice counts once.
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
