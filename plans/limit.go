package plans

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/headgate/headgate/core"
)

// kinds are the fields that say which algorithm a limit is, with all fields of that one.
var kinds = []struct {
	name   string
	fields []string
	read   func(*reader, limitFields) core.Algorithm
}{
	{"rate", []string{"rate", "per", "burst", "then"}, (*reader).tokenBucket},
	{"leak", []string{"leak", "per", "capacity"}, (*reader).leakyBucket},
	{"fixed_window", []string{"limit", "fixed_window", "from_first", "then"}, (*reader).fixedWindow},
	{"sliding_window", []string{"limit", "sliding_window", "buckets"}, (*reader).slidingWindow},
	{"sliding_log", []string{"limit", "sliding_log"}, (*reader).slidingLog},
	{"calendar", []string{"limit", "calendar", "in", "anchor", "then", "keep"}, (*reader).calendar},
}

// limitFields are the fields of a limit.
type limitFields struct {
	path string
	all  map[string]ast.Node
}

// limits reads the limit of a name, and what answers when it is spent, into a plan.
func (r *reader) limits(p *Plan, name, path string, n ast.Node) {
	add := func(name, path string, limit core.Algorithm) {
		if limit == nil {
			return
		}
		if p.Limits[name] != nil {
			r.fault(path, "is there twice: %s is a limit too", name)
		}
		p.Limits[name] = limit
	}
	limit, fields := r.limit(path, n)
	add(name, path, limit)
	if limit == nil {
		return
	}
	r.named[path] = name
	if then := fields["then"]; then != nil {
		r.then(p, name, path+".then", limit, then, add)
	}
	if n := fields["keep"]; n != nil {
		path += ".keep"
		keep := r.duration(path, n)
		switch {
		case keep < 0:
			r.fault(path, "is %v: it must not be negative", keep)
		case strings.Contains(name, "/"): // nethttp.Quotas knows no models
			r.fault(path, "is of a limit for a model, which nobody keeps")
		}
		for _, name := range []string{name, Then(name)[0]} {
			if p.Limits[name] != nil {
				add(KeptName(name), path, keptFor(limit, keep))
			}
		}
	}
}

// then reads what answers when the limit of a name is spent.
func (r *reader) then(
	p *Plan, name, path string, limit core.Algorithm, then ast.Node, add func(name, path string, limit core.Algorithm),
) {
	if withUnits(limit, 1) == nil {
		r.fault(path, "is for a quota: a calendar, a fixed_window without from_first, or a rate of 0")
		return
	}
	names, before := Then(name), len(p.Limits)+len(r.faults)
	r.mapping(path, then, map[string]readFunc{
		"overage": func(path string, n ast.Node) {
			if units, ok := r.integer(path, n); ok {
				add(names[0], path, withUnits(limit, units))
			}
		},
		"slow": func(path string, n ast.Node) {
			slow, fields := r.limit(path, n)
			for _, name := range []string{"then", "keep"} {
				if fields[name] != nil {
					r.fault(path+"."+name, "is of a limit that answers for another")
				}
			}
			add(names[1], path, slow)
		},
	})
	if len(p.Limits)+len(r.faults) == before {
		r.fault(path, "is empty: it must have an overage or a slow")
	}
}

// keptFor returns the limit that counts what a calendar has admitted in one period, and keeps that for a
// time after the period's end: it admits everything.
func keptFor(calendar core.Algorithm, keep time.Duration) core.Algorithm {
	c, ok := calendar.(core.Calendar)
	if !ok {
		c = calendar.(Subscribed).Calendar
	}
	const day = 24 * time.Hour
	longest := map[core.Period]time.Duration{
		core.PeriodMinute: time.Minute, core.PeriodHour: time.Hour, core.PeriodDay: 2 * day,
		core.PeriodWeek: 8 * day, core.PeriodMonth: 32 * day, core.PeriodYear: 367 * day,
	}
	return core.TokenBucket{Burst: mostKept, Per: keep + longest[c.Every]}
}

const mostKept = 1e15 // units

// withUnits returns a quota of the same periods that has some units, or nil for a limit that is no
// quota: units of it come back before its period ends.
func withUnits(limit core.Algorithm, units int64) core.Algorithm {
	switch q := limit.(type) {
	case core.Calendar:
		q.Limit = units
		return q
	case Subscribed:
		q.Limit = units
		return q
	case core.FixedWindow:
		if !q.FromFirst {
			q.Limit = units
			return q
		}
	case core.TokenBucket:
		if q.Rate == 0 {
			q.Burst = units
			return q
		}
	}
	return nil
}

// limit reads a limit, and returns the nodes of its fields too. The limit is nil if it has added a fault.
func (r *reader) limit(path string, n ast.Node) (limit core.Algorithm, fields map[string]ast.Node) {
	if s, ok := n.(*ast.StringNode); ok {
		switch s.Value {
		case "unlimited":
			return core.Unlimited{}, nil
		case "deny":
			return core.DenyAll{}, nil
		}
	}
	if _, ok := n.(ast.MapNode); !ok {
		r.fault(path, "is %s: it must be unlimited, deny or a mapping such as {rate: 100, per: 1m}",
			describe(n))
		return nil, nil
	}
	before := len(r.faults)
	f := limitFields{path + ".", make(map[string]ast.Node)}
	r.entries(path, n, func(name, _ string, n ast.Node) { f.all[name] = n })
	var chosen, names []string
	kind := -1
	for i, k := range kinds {
		names = append(names, k.name)
		if f.all[k.name] != nil {
			chosen, kind = append(chosen, k.name), i
		}
	}
	if len(chosen) != 1 {
		if chosen == nil {
			r.fault(path, "says no algorithm: one of the fields %s is required", strings.Join(names, ", "))
		} else {
			r.fault(path, "says %d algorithms: %s", len(chosen), strings.Join(chosen, ", "))
		}
		return nil, nil
	}
	for name := range f.all {
		if known := kinds[kind].fields; !slices.Contains(known, name) {
			r.fault(f.path+name, "is no field of a limit with %s: there are %s", chosen[0], strings.Join(known, ", "))
		}
	}
	limit = kinds[kind].read(r, f)
	if len(r.faults) > before {
		return nil, nil
	}
	return limit, f.all
}

// fieldInteger reads a field that may be absent.
func (r *reader) fieldInteger(f limitFields, name string, otherwise int64) int64 {
	if n, ok := f.all[name]; ok {
		v, _ := r.integer(f.path+name, n)
		return v
	}
	return otherwise
}

// fieldDuration reads a field that may be absent.
func (r *reader) fieldDuration(f limitFields, name string) time.Duration {
	if n, ok := f.all[name]; ok {
		return r.duration(f.path+name, n)
	}
	return 0
}

// capacityOf returns the capacity of a bucket that states none. A negative rate is one fault, not
// two.
func capacityOf(rate int64) int64 {
	if rate < 0 {
		return 1
	}
	return rate
}

func (r *reader) tokenBucket(f limitFields) core.Algorithm {
	rate := r.fieldInteger(f, "rate", 0)
	return core.TokenBucket{
		Rate: rate, Per: r.fieldDuration(f, "per"), Burst: r.fieldInteger(f, "burst", capacityOf(rate)),
	}
}

func (r *reader) leakyBucket(f limitFields) core.Algorithm {
	rate := r.fieldInteger(f, "leak", 0)
	return core.LeakyBucket{
		Rate: rate, Per: r.fieldDuration(f, "per"),
		Capacity: r.fieldInteger(f, "capacity", capacityOf(rate)),
	}
}

func (r *reader) fixedWindow(f limitFields) core.Algorithm {
	w := core.FixedWindow{
		Limit: r.fieldInteger(f, "limit", 0), Window: r.fieldDuration(f, "fixed_window"),
	}
	if n, ok := f.all["from_first"]; ok {
		w.FromFirst = r.boolean(f.path+"from_first", n)
	}
	return w
}

func (r *reader) slidingWindow(f limitFields) core.Algorithm {
	return core.SlidingWindow{
		Limit: r.fieldInteger(f, "limit", 0), Window: r.fieldDuration(f, "sliding_window"),
		Buckets: int(r.fieldInteger(f, "buckets", 0)),
	}
}

func (r *reader) slidingLog(f limitFields) core.Algorithm {
	list, ok := f.all["sliding_log"].(*ast.SequenceNode)
	if !ok {
		return core.SlidingLog{Windows: []core.Window{{
			Limit: r.fieldInteger(f, "limit", 0), Width: r.fieldDuration(f, "sliding_log"),
		}}}
	}
	if _, ok := f.all["limit"]; ok {
		r.fault(f.path+"limit", "stands beside a list, whose windows have limits of their own")
	}
	var log core.SlidingLog
	for i, n := range list.Values {
		var w core.Window
		r.mapping(fmt.Sprintf("%ssliding_log[%d]", f.path, i), n, map[string]readFunc{
			"limit":  func(path string, n ast.Node) { w.Limit, _ = r.integer(path, n) },
			"window": func(path string, n ast.Node) { w.Width = r.duration(path, n) },
		})
		log.Windows = append(log.Windows, w)
	}
	return log
}

// form is a limit in the form of a file.
type form map[string]any

// formOf returns a limit in the form of a file, for JSON.
func formOf(limit core.Algorithm) (any, error) {
	switch l := limit.(type) {
	case core.Unlimited:
		return "unlimited", nil
	case core.DenyAll:
		return "deny", nil
	case core.TokenBucket:
		f := form{"rate": l.Rate, "burst": l.Burst}
		if l.Per != 0 {
			f["per"] = l.Per.String()
		}
		return f, nil
	case core.LeakyBucket:
		return form{"leak": l.Rate, "per": l.Per.String(), "capacity": l.Capacity}, nil
	case core.FixedWindow:
		return form{
			"limit": l.Limit, "fixed_window": l.Window.String(), "from_first": l.FromFirst,
		}, nil
	case core.SlidingWindow:
		return form{
			"limit": l.Limit, "sliding_window": l.Window.String(), "buckets": l.Buckets,
		}, nil
	case core.SlidingLog:
		var windows []form
		for _, w := range l.Windows {
			windows = append(windows, form{"limit": w.Limit, "window": w.Width.String()})
		}
		return form{"sliding_log": windows}, nil
	case core.Calendar:
		f, err := formOfCalendar(l)
		if !l.Anchor.IsZero() {
			f["anchor"] = l.Anchor.Format(time.RFC3339Nano)
		}
		return f, err
	case Subscribed:
		f, err := formOfCalendar(l.Calendar)
		f["anchor"] = subscriptionAnchor
		return f, err
	}
	return nil, fmt.Errorf("is a %T, which cannot be stored", limit)
}
