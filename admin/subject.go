package admin

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// subject is the page of a key.
func (a *Admin) subject(w http.ResponseWriter, r *http.Request) {
	view, status := a.look(r)
	a.render(w, r, status, "subject", view.Title, view)
}

// subjectView is what the page of a key shows.
type subjectView struct {
	Title   string
	Wrong   string // why there is nothing to show
	Key     core.Key
	At      time.Time
	Writes  bool
	Several bool // limits would deny
	Why     inspect.Verdict
	// Unknown says in a few words why the answer, or a part of it, is not known. Outage is why failure
	// modes decide, and Faults why parts are missing.
	Unknown     string
	Outage      string
	Refused     bool // requests fail with an error, because Redis is misconfigured
	Faults      []faultRow
	HasPolicies bool
	Others      []statedRow // policies of programs that this page was not given
	Tenants     []tenantRow
	Limits      []limitRow
	Slots       []slotsRow
	Plans       []string // the names of all
}

type faultRow struct{ What, Advice string }

// statedRow is a policy that programs state.
type statedRow struct{ Name, Text string }

type tenantRow struct {
	inspect.Tenant
	Text  string // of the override, in the form of a file
	Until time.Time
}

// limitRow is how a key stands under a policy.
type limitRow struct {
	*inspect.Limit
	ID                             string // begins the ids of its elements, which stay as rows come and move
	Own                            bool   // the key is that of the page
	Text                           string
	Stateless                      bool   // there is nothing to show or to reset
	Gives, Raises, Blocks, Blocked bool   // what can be done
	Unheeded                       string // why programs heed neither a raise nor a block
	Period                         bool   // a raise may last until the end of the period
	Tenant                         string
	LimitText                      string
	UsedPercent, HeldPercent       int64
}

// slotsRow is how a key stands at a semaphore.
type slotsRow struct {
	inspect.Slots
	MoreHolders, MoreWait int // that are not shown
}

const (
	maxHolders = 50 // that are shown of one semaphore
	maxWaiters = 20
)

// look looks a key up, as a request asks.
func (a *Admin) look(r *http.Request) (v subjectView, status int) {
	text := r.URL.Query().Get("key")
	v = subjectView{Title: "Look up", Writes: a.mayWrite(r)}
	key, err := a.find(r.Context(), text)
	if err != nil {
		v.Wrong = "Write the parts of a key with slashes between them, such as acme/bob. " +
			"A slash within a part is %2F."
		return v, http.StatusBadRequest
	}
	s, err := a.inspector.Lookup(r.Context(), key)
	if err != nil {
		v.Wrong = "The key could not be looked up."
		if errors.Is(err, core.ErrClosed) {
			v.Wrong = "The Gate is closed."
		}
		return v, http.StatusServiceUnavailable
	}
	v.Title, v.Key, v.At, v.Why = a.name(key), key, s.At, s.Why
	v.fill(a, s)
	return v, http.StatusOK
}

// fill fills in how a subject stands.
func (v *subjectView) fill(a *Admin, s *inspect.Subject) {
	v.doubt(a, s)
	v.Several = len(s.Why.Reasons) > 1 && s.Why.Reasons[1].Slots == nil
	for _, t := range s.Tenants {
		row := tenantRow{Tenant: t}
		if t.Override != nil {
			text, _ := t.Override.MarshalText() // it comes from Redis as such
			row.Text, row.Until = string(text), t.Override.Until
		}
		v.Tenants = append(v.Tenants, row)
	}
	if a.cfg.Plans != nil {
		v.Plans = a.cfg.Plans.Set().Names()
	}
	v.Others = a.others(s.Stated)
	for i := range s.Limits {
		v.Limits = append(v.Limits, a.rowOf(&s.Limits[i], s))
	}
	slices.SortStableFunc(v.Limits, func(a, b limitRow) int { return b.rank() - a.rank() })
	for _, one := range s.Slots {
		v.Slots = append(v.Slots, slotsOf(one))
	}
}

// doubt fills in what is not known, and why.
func (v *subjectView) doubt(a *Admin, s *inspect.Subject) {
	v.HasPolicies = len(a.cfg.Policies) > 0
	for _, err := range slices.Backward(s.Faults) {
		v.Unknown = inspect.Cause(err)
		v.Refused = v.Refused || errors.Is(err, core.ErrMisconfigured)
	}
	for _, err := range s.Faults {
		v.Faults = append(v.Faults, faultRow{err.Error(), inspect.Advice(err)})
	}
	if s.Outage != nil {
		v.Unknown, v.Outage = inspect.Cause(s.Outage), inner(s.Outage)
	}
}

// rank puts what denies first, and then what is in use.
func (r *limitRow) rank() int {
	switch {
	case r.Denies():
		return 2
	case r.Touched():
		return 1
	}
	return 0
}

// rowOf returns how a key stands under a policy, and what can be done.
func (a *Admin) rowOf(l *inspect.Limit, s *inspect.Subject) limitRow {
	row := limitRow{Limit: l, Own: l.Key == s.Key, Text: inspect.Describe(l.Algorithm)}
	if row.ID = "limit-" + l.Policy.Name(); !row.Own {
		row.ID += "-" + l.Key.String()
	}
	switch l.Algorithm.(type) {
	case core.Unlimited, core.DenyAll:
		row.Stateless = true
	case core.Block:
		row.Blocks, row.Blocked = true, !l.Result.Allowed
	}
	row.Gives = inspect.Adjustable(l.Algorithm)
	row.Raises = inspect.IsQuota(l.Algorithm) && l.Policy.Raisable()
	row.heed(s.Stated)
	switch l.Algorithm.(type) {
	case core.Calendar, core.FixedWindow:
		row.Period = true
	}
	if len(s.Tenants) > 0 && !row.Blocks {
		row.Tenant = s.Tenants[0].Name
		row.LimitText = a.inspector.LimitText(s, l)
	}
	row.UsedPercent = percent(l.Result.Used, l.Result.Limit)
	row.HeldPercent = percent(l.Result.Held, l.Result.Limit)
	return row
}

// heed leaves out the changes that no program heeds, by the policies that programs state, or nil if
// that is not known.
func (r *limitRow) heed(stated []inspect.Stated) {
	var err error
	switch {
	case stated == nil:
	case r.Raises:
		err = inspect.HeedRaises(stated, r.Policy.Name())
	case r.Blocks && !r.Blocked:
		err = inspect.HeedBlocks(stated, r.Policy.Name())
	}
	if err != nil {
		r.Raises, r.Unheeded = false, inner(err)
	}
}

// others returns the policies that programs state and that this page was not given.
func (a *Admin) others(stated []inspect.Stated) (all []statedRow) {
	for _, s := range stated {
		if a.inspector.Policy(s.Name) != nil {
			continue
		}
		row := statedRow{Name: s.Name, Text: "a limit that is not known"}
		if s.Err == nil {
			row.Text = inspect.Describe(s.Policy.Algorithm())
		}
		all = append(all, row)
	}
	return all
}

// slotsOf leaves out the holders and waiters that are too many.
func slotsOf(s inspect.Slots) slotsRow {
	row := slotsRow{Slots: s}
	row.MoreHolders = max(0, len(s.Holders)-maxHolders) + max(0, len(s.Others)-maxHolders)
	row.MoreWait = max(0, len(s.Waiters)-maxWaiters)
	row.Holders, row.Others = s.Holders[:min(len(s.Holders), maxHolders)], s.Others[:min(len(s.Others), maxHolders)]
	row.Waiters = s.Waiters[:min(len(s.Waiters), maxWaiters)]
	return row
}

// blockedView lists the keys that are blocked under a policy.
type blockedView struct {
	Policy string
	Wrong  faultRow
	Keys   []blockedRow
	More   bool
}

type blockedRow struct {
	Key   core.Key
	Until time.Time
	Rest  time.Duration
}

const maxBlocked = 500

// blocked is the page of the keys that are blocked.
func (a *Admin) blocked(w http.ResponseWriter, r *http.Request) {
	p := a.inspector.Policy(r.URL.Query().Get("policy"))
	if p == nil {
		http.Error(w, "There is no such policy.", http.StatusNotFound)
		return
	}
	v := blockedView{Policy: p.Name()}
	all, err := a.inspector.Blocked(r.Context(), p, maxBlocked+1)
	if err != nil {
		v.Wrong = faultRow{inspect.Explain(err).Error(), inspect.Advice(err)}
	}
	v.More = len(all) > maxBlocked
	now := time.Now()
	for _, k := range all[:min(len(all), maxBlocked)] {
		v.Keys = append(v.Keys, blockedRow{k.Key, now.Add(k.Rest), k.Rest})
	}
	a.render(w, r, http.StatusOK, "blocked", "Blocked by "+p.Name(), v)
}
