package admin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/plans"
)

// confirmView asks whether to carry out an order.
type confirmView struct {
	Wrong    string
	Advice   string
	Question string
	Notes    []string
	Details  string // in the form of a file
	Verb     string // of the button
	Grave    bool   // it cannot be undone
	Fields   url.Values
	Back     string
}

// confirm is the page that asks once.
func (a *Admin) confirm(w http.ResponseWriter, r *http.Request) {
	o, err := a.read(r.URL.Query())
	v := confirmView{Back: back(&o)}
	if err == nil {
		o.ID = rand.Text()
		err = a.ask(r.Context(), &o, &v)
	}
	if err != nil {
		v.Wrong, v.Advice = sentence(err), inspect.Advice(err)
		a.render(w, r, http.StatusBadRequest, "confirm", "This cannot be done", v)
		return
	}
	v.Fields = o.fields()
	a.render(w, r, http.StatusOK, "confirm", v.Verb, v)
}

// back returns the address of the page that an order came from.
func back(o *order) string {
	if o.Back != "" {
		return "subject?" + url.Values{"key": {o.Back}}.Encode()
	}
	if o.Key != (core.Key{}) {
		return link(o.Key)
	}
	return "./"
}

// ask fills in what the operator is asked.
func (a *Admin) ask(ctx context.Context, o *order, v *confirmView) error {
	switch o.Op {
	case OpEvict:
		return a.askEviction(ctx, o, v)
	case OpOverride, OpEndOverride:
		return a.askOverride(ctx, o, v)
	}
	if err := a.heeded(ctx, o); err != nil {
		return err
	}
	l, err := a.inspector.Limit(ctx, o.Policy, o.Key)
	if err != nil {
		return fmt.Errorf("redis cannot be asked: %w", err)
	}
	at, unit, n := a.name(o.Key), l.Policy.Unit(), inspect.Number(o.Units)
	stands := fmt.Sprintf("It has used %s of %s.", inspect.Number(l.Result.Used), inspect.Number(l.Result.Limit))
	switch o.Op {
	case OpReset:
		v.Verb, v.Question = "Reset", fmt.Sprintf("Forget what %s has spent under %s?", at, l.Policy.Name())
		v.Notes, v.Grave = []string{stands}, !inspect.Adjustable(l.Algorithm)
	case OpGive:
		v.Verb = "Give " + n + " more"
		v.Question = fmt.Sprintf("Give %s %s %s of %s back?", at, n, unit, l.Policy.Name())
		v.Notes = []string{stands, "At most what is used comes back."}
	case OpTake:
		v.Verb = "Charge " + n
		v.Question = fmt.Sprintf("Charge %s %s %s of %s?", at, n, unit, l.Policy.Name())
		v.Notes = []string{stands}
	case OpRaise:
		if o.Until, err = o.end(time.Now(), periodOf(&l, time.Now())); err != nil {
			return err
		}
		v.Verb = "Raise by " + n
		v.Question = fmt.Sprintf("Raise the limit of %s under %s by %s %s until %s?",
			at, l.Policy.Name(), n, unit, stamp(o.Until).Human)
		v.Notes = []string{stands}
	case OpBlock:
		if o.Until, err = o.end(time.Now(), time.Time{}); err != nil {
			return err
		}
		v.Verb = "Block"
		v.Question = fmt.Sprintf("Block %s under %s until %s?", at, l.Policy.Name(), stamp(o.Until).Human)
		v.Notes = []string{"It forgets the strikes of the key."}
	case OpUnblock:
		v.Verb, v.Question = "Unblock", fmt.Sprintf("Unblock %s under %s?", at, l.Policy.Name())
		v.Notes = []string{"It forgives: the next block is as short as the first. Other processes remember a " +
			"block for up to a second."}
	default:
		return errors.New("this is done by its button alone")
	}
	return nil
}

// periodOf returns the end of the period of a quota at a time, or zero if it has none.
func periodOf(l *inspect.Limit, at time.Time) time.Time {
	switch a := l.Algorithm.(type) {
	case core.Calendar:
		span, err := a.Period(at)
		if err == nil {
			return span.Until
		}
	case core.FixedWindow: // windows start at multiples of their width since 1970
		width, now := a.Window.Microseconds(), at.UnixMicro()
		return time.UnixMicro(now - now%width + width)
	}
	return time.Time{}
}

func (a *Admin) askEviction(ctx context.Context, o *order, v *confirmView) error {
	s, err := a.inspector.Slots(ctx, a.inspector.Semaphore(o.Slots), o.Key)
	if err != nil {
		return fmt.Errorf("redis cannot be asked: %w", err)
	}
	for _, h := range s.Holders {
		if h.ID != o.Holder {
			continue
		}
		v.Verb, v.Grave = "Evict", true
		v.Question = fmt.Sprintf("Take the slot of %s at %s away?", a.name(h.Key), o.Slots)
		v.Notes = []string{fmt.Sprintf("It is held for %s.", ago(h.Since))}
		for _, name := range slices.Sorted(maps.Keys(h.Meta)) {
			v.Notes = append(v.Notes, name+": "+h.Meta[name])
		}
		return nil
	}
	return errors.New("the holder has left: nobody has that slot any more")
}

func (a *Admin) askOverride(ctx context.Context, o *order, v *confirmView) error {
	before, is, err := a.cfg.Plans.Override(ctx, o.Tenant)
	if err != nil {
		return fmt.Errorf("redis cannot be asked: %w", err)
	}
	if o.Op == OpEndOverride {
		if !is {
			return errors.New("the tenant has no override")
		}
		text, _ := before.MarshalText() // it comes from Redis as such
		v.Verb, v.Question, v.Details = "Remove the override", "Remove the override of "+o.Tenant+"?", string(text)
		return nil
	}
	var old *plans.Override
	if is {
		old = &before
	}
	after, err := o.change(old)
	if err != nil {
		return err
	}
	text, err := after.MarshalText()
	if err != nil {
		return err
	}
	if after.Plan == "" && len(after.Limits)+len(after.Caps) == 0 {
		return errors.New("choose a plan or write a limit: the override would be empty")
	}
	o.Override, o.Until = string(text), after.Until
	v.Verb, v.Question, v.Details = "Set the override", "Set this override of "+o.Tenant+"?", o.Override
	if is {
		text, _ := before.MarshalText()
		v.Notes = []string{"It replaces " + string(text)}
	}
	return nil
}

// inner returns an error as a part of a sentence.
func inner(err error) string { return strings.TrimSuffix(err.Error(), ".") }

// sentence returns an error as a sentence.
func sentence(err error) string {
	text := inspect.Explain(err).Error()
	if text != "" && 'a' <= text[0] && text[0] <= 'z' {
		text = string(text[0]-'a'+'A') + text[1:]
	}
	return strings.TrimSuffix(text, ".") + "."
}
