package admin

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
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
	var text string
	var undo *inspect.Order
	if err = a.inspector.Heed(r.Context(), &o.Order); err == nil {
		text, undo, err = a.inspector.Do(r.Context(), &o.Order, a.at(&o))
	}
	a.tell(r.Context(), Event{
		operatorOf(r.Context()), Op(o.Op), o.Key, o.Policy, o.Units, o.Until, o.Slots, strings.Join(o.Holders, " "),
		o.Tenant, o.Override, err,
	})
	status, title := http.StatusOK, "Done"
	if v.Text = text; err != nil {
		a.done.forget(o.ID)
		v.Text, v.Failed, v.Advice = sentence(err), true, inspect.Advice(err)
		status, title = http.StatusBadGateway, "This has failed"
		if errors.Is(err, core.ErrCharge) || errors.Is(err, core.ErrPeriod) || errors.As(err, new(inspect.Unchanged)) {
			status, title = http.StatusConflict, "Nothing has changed"
		}
	} else if undo != nil {
		o.Order = *undo
		o.ID = rand.Text()
		v.Undo, v.Verb = o.fields(), "Undo: "+inspect.Operations[o.Op].Undo
	}
	a.render(w, r, status, "result", title, v)
}

// at returns what the page calls the key of an order.
func (a *Admin) at(o *order) string {
	if o.Key == (core.Key{}) {
		return ""
	}
	return a.name(o.Key)
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
