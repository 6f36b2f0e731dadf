package main

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
)

// subjectView is the answer of show.
type subjectView struct {
	Key     string       `json:"key"`
	Path    string       `json:"path"`
	At      stamp        `json:"at"`
	Limits  []limitView  `json:"limits"`
	Slots   []slotsView  `json:"semaphores"`
	Others  []othersView `json:"others"`
	Below   int          `json:"keys_below"`
	Blocked seconds      `json:"blocked_seconds"`
}

type limitView struct {
	Key       string         `json:"key"`
	Policy    string         `json:"policy"`
	Label     string         `json:"label,omitempty"`
	Algorithm string         `json:"algorithm"`
	Limit     *int64         `json:"limit,omitempty"`
	Used      *int64         `json:"used"`
	Stored    int64          `json:"stored_units"`
	Rest      seconds        `json:"untouched_after_seconds"`
	Blocked   seconds        `json:"blocked_seconds,omitempty"`
	TTL       seconds        `json:"ttl_seconds"`
	Redis     string         `json:"redis_key"`
	Value     string         `json:"value"`
	Details   map[string]any `json:"details"`
	Holds     []holdView     `json:"holds,omitempty"`
	Raises    []raiseView    `json:"raises,omitempty"`
	Adjusted  []string       `json:"adjustments,omitempty"`
	// Unknown says that the count fits no limit that programs state or a file has.
	Unknown bool `json:"unknown"`
	details string
}

type holdView struct {
	ID    string  `json:"id"`
	Units int64   `json:"units"`
	Left  seconds `json:"left_seconds"`
}

type raiseView struct {
	Units int64   `json:"units"`
	Left  seconds `json:"left_seconds"`
}

type othersView struct {
	Kind  string `json:"kind"`
	Redis string `json:"redis_key"`
}

func (v *subjectView) isEmpty() bool {
	return len(v.Limits)+len(v.Slots)+len(v.Others) == 0
}

// viewOf returns what show writes of a subject.
func viewOf(key core.Key, s *stored.Subject, k *known) *subjectView {
	v := &subjectView{
		Key: formatKey(key), Path: key.String(), At: stamp(s.At), Limits: []limitView{},
		Slots: []slotsView{}, Others: []othersView{}, Below: s.Below,
	}
	labels := k.labels()
	for i := range s.Entries {
		one := limitOf(&s.Entries[i], labels)
		if one.Unknown = !k.counts(&s.Entries[i]); one.Unknown {
			one.details = strings.TrimSuffix("fits no limit that is known, "+one.details, ", ")
		}
		v.Limits = append(v.Limits, one)
		v.Blocked = max(v.Blocked, one.Blocked)
	}
	for i := range s.Slots {
		if one := slotsOf(key.String(), &s.Slots[i], s.At); len(one.Holders)+len(one.Waiters) > 0 {
			v.Slots = append(v.Slots, one)
		}
	}
	for _, o := range s.Others {
		v.Others = append(v.Others, othersView{string(o.Kind), o.Redis})
	}
	return v
}

func limitOf(e *stored.Entry, known map[string]named) limitView {
	v := limitView{
		Key: formatPath(e.Path), Policy: e.Policy, Label: e.Label, Algorithm: e.Algorithm,
		Stored: e.Used, Rest: seconds(e.Rest), Blocked: seconds(e.Blocked), TTL: seconds(e.TTL),
		Redis: e.Redis, Value: e.Value, Details: make(map[string]any), Adjusted: e.Adjusted.IDs,
	}
	if e.Known {
		v.Used = &e.Used
	}
	if n, ok := known[e.Label]; ok && e.Bucket != nil {
		v.Policy = n.policy
		if limit, used, ok := usedOf(e.Bucket, n.limit); ok {
			for _, h := range e.Ended {
				if !e.Bucket.Frozen { // otherwise its level has them no more
					used = max(0, used-h.Units)
				}
			}
			v.Limit, v.Used = &limit, &used
		}
	}
	var details []string
	for _, d := range e.Details {
		name := strings.ReplaceAll(d.Name, " ", "_")
		if d.Time.IsZero() {
			v.Details[name] = d.Number
			details = append(details, fmt.Sprintf("%s %s", d.Name, inspect.Number(d.Number)))
		} else {
			v.Details[name] = stamp(d.Time)
			details = append(details, fmt.Sprintf("%s %s", d.Name, clock(d.Time)))
		}
	}
	for _, h := range e.Holds {
		v.Holds = append(v.Holds, holdView{h.ID, h.Units, seconds(h.Left)})
		details = append(details, fmt.Sprintf("%s held for %s", inspect.Number(h.Units), span(h.Left)))
	}
	for _, r := range e.Adjusted.Raises {
		v.Raises = append(v.Raises, raiseView{r.Units, seconds(r.Left)})
		details = append(details, fmt.Sprintf("raised by %s for %s", inspect.Number(r.Units), span(r.Left)))
	}
	v.details = strings.Join(details, ", ")
	return v
}

// metadata returns what a holder or a waiter says about itself.
func metadata(text string) map[string]string {
	all := make(map[string]string)
	if text == "-" {
		return all
	}
	if values, err := url.ParseQuery(text); err == nil {
		for name := range values {
			all[name] = values.Get(name)
		}
	}
	return all
}

func joined(meta map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		all = append(all, name+"="+meta[name])
	}
	return strings.Join(all, " ")
}
