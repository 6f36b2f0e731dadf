package admin

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/plans"
)

// order is a change that an operator asks for.
type order struct {
	inspect.Order
	// For is how long a raise, a block or an override lasts, as the operator chose.
	For string
	// Plan, Limit and LimitPolicy are what an override changes.
	Plan, Limit, LimitPolicy string
	Back                     string // the key of the page that the operator came from

	form url.Values // that it was read from
}

// untilPeriod is a For until the end of the quota's period, and forever is an override without an end.
const (
	untilPeriod = "period"
	forever     = "forever"
)

// maxUnits is the largest number of an Adjustment.
const maxUnits = 1_000_000_000_000_000

// read reads an order from the fields of a form. It says what is wrong in words for the operator.
func (a *Admin) read(form url.Values) (o order, err error) {
	o.form = form
	o.Op, o.ID, o.Back = inspect.OpOf(form.Get("action")), form.Get("id"), form.Get("back")
	o.For, o.Limit, o.LimitPolicy = form.Get("for"), form.Get("limit"), form.Get("limit_policy")
	o.Slots, o.Tenant = form.Get("slots"), form.Get("tenant")
	o.Override, o.Plan = form.Get("override"), form.Get("plan")
	if o.Op == 0 {
		return o, errors.New("there is no such action")
	}
	if o.Until, err = readTime(form.Get("until")); err != nil {
		return o, err
	}
	if o.Op == inspect.OpOverride || o.Op == inspect.OpEndOverride {
		return o, a.knows(o.Tenant)
	}
	if o.Key, err = inspect.ParseKey(form.Get("key")); err != nil {
		return o, errors.New("the key is not one")
	}
	if o.Op == inspect.OpEvict {
		if a.inspector.Semaphore(o.Slots) == nil {
			return o, errors.New("there is no such semaphore")
		}
		o.Holders, o.Units = form["holder"], int64(len(form["holder"]))
		return o, nil
	}
	if o.Policy = a.inspector.Policy(form.Get("policy")); o.Policy == nil {
		return o, errors.New("there is no such policy")
	}
	switch o.Op {
	case inspect.OpGive, inspect.OpTake, inspect.OpRaise, inspect.OpEndRaise:
		o.Units, err = strconv.ParseInt(strings.TrimSpace(form.Get("units")), 10, 64)
		if err != nil || o.Units < 1 || o.Units > maxUnits {
			return o, fmt.Errorf("%.40q is no number of units: write one from 1 to 10^15", form.Get("units"))
		}
	}
	return o, nil
}

func readTime(text string) (t time.Time, err error) {
	if text == "" {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339Nano, text); err != nil {
		err = errors.New("the time is not one")
	}
	return t, err
}

// knows returns an error for a tenant that cannot have an override.
func (a *Admin) knows(tenant string) error {
	if a.cfg.Plans == nil || tenant == "" {
		return errors.New("this page knows no such tenant")
	}
	return nil
}

// fields returns the fields of a form for the order: those that it was read from, without the operator's
// choices, which it has made times and overrides of.
func (o *order) fields() url.Values {
	form := maps.Clone(o.form)
	for _, chosen := range []string{"for", "plan", "limit", "limit_policy", "units", "until", "override"} {
		form.Del(chosen)
	}
	form.Set("action", inspect.Operations[o.Op].Name)
	form.Set("id", o.ID)
	if o.Units != 0 {
		form.Set("units", strconv.FormatInt(o.Units, 10))
	}
	if !o.Until.IsZero() {
		form.Set("until", o.Until.UTC().Format(time.RFC3339Nano))
	}
	if o.Override != "" {
		form.Set("override", o.Override)
	}
	return form
}

// durations are what an operator may choose for a raise, a block or an override.
var durations = map[string]time.Duration{
	"15m": 15 * time.Minute, "1h": time.Hour, "1d": 24 * time.Hour, "7d": 7 * 24 * time.Hour,
	"30d": 30 * 24 * time.Hour,
}

// end returns when something ends that lasts as an operator chose.
func (o *order) end(now, period time.Time) (time.Time, error) {
	if o.For == untilPeriod {
		if period.IsZero() {
			return time.Time{}, errors.New("the limit has no period that ends")
		}
		return period, nil
	}
	d, known := durations[o.For]
	if !known {
		return time.Time{}, errors.New("the time for which it lasts is missing")
	}
	return now.Add(d).Truncate(time.Second), nil
}

// change returns an override that the order changes, or a new one.
func (o *order) change(before *plans.Override) (after plans.Override, err error) {
	if before != nil {
		after = *before
	}
	if o.Plan != "" {
		after.Plan = o.Plan
	}
	if o.Limit != "" {
		limits := make(map[string]core.Algorithm)
		maps.Copy(limits, after.Limits)
		own, err := readLimits(o.LimitPolicy, o.Limit)
		if err != nil {
			return after, err
		}
		if len(own) > 1 { // its then takes the place of the earlier one
			for _, name := range plans.Then(o.LimitPolicy) {
				delete(limits, name)
			}
		}
		maps.Copy(limits, own)
		after.Limits = limits
	}
	after.Until = time.Time{}
	if o.For != forever {
		after.Until, err = o.end(time.Now(), time.Time{})
	}
	return after, err
}

// readLimits reads the limit of a policy as a file of plans has it, with those of its then and its keep.
func readLimits(policy, text string) (map[string]core.Algorithm, error) {
	var o plans.Override
	if strings.ContainsAny(text, "\r\n") {
		return nil, errors.New("the limit has several lines")
	}
	if err := o.UnmarshalText(fmt.Appendf(nil, "limits:\n  %q: %s", policy, text)); err != nil {
		return nil, fmt.Errorf("the limit %.80q: %w", text, err)
	}
	return o.Limits, nil
}
