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
func (a *Admin) ask(ctx context.Context, o *order, v *confirmView) (err error) {
	op := &inspect.Operations[o.Op]
	switch {
	case op.Question == "":
		return errors.New("this is done by its button alone")
	case o.Op == inspect.OpEvict:
		err = a.askEviction(ctx, o, v)
	case o.Policy == nil:
		err = a.askOverride(ctx, o, v)
	default:
		err = a.askLimit(ctx, o, v)
	}
	if op.Note != "" {
		v.Notes = append(v.Notes, op.Note)
	}
	at := a.at(o)
	v.Verb, v.Question = o.Words(op.Verb, at), o.Words(op.Question, at)
	return err
}

func (a *Admin) askLimit(ctx context.Context, o *order, v *confirmView) error {
	if err := a.inspector.Heed(ctx, &o.Order); err != nil {
		return err
	}
	l, err := a.inspector.Limit(ctx, o.Policy, o.Key)
	if err != nil {
		return fmt.Errorf("redis cannot be asked: %w", err)
	}
	if !l.Blocks() {
		v.Notes = []string{fmt.Sprintf("It has used %s of %s.",
			inspect.Number(l.Result.Used), inspect.Number(l.Result.Limit))}
	}
	switch o.Op {
	case inspect.OpReset:
		v.Grave = !inspect.Adjustable(l.Algorithm)
	case inspect.OpRaise, inspect.OpBlock:
		o.Until, err = o.end(time.Now(), periodOf(&l, time.Now()))
	}
	return err
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
		if !slices.Contains(o.Holders, h.ID) {
			continue
		}
		v.Grave = true
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
	if o.Op == inspect.OpEndOverride {
		if !is {
			return errors.New("the tenant has no override")
		}
		text, _ := before.MarshalText() // it comes from Redis as such
		v.Details = string(text)
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
	v.Details = o.Override
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
