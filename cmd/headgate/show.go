package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/stored"
)

// showing is the flags of show.
type showing struct {
	*app
	policies, name string
	below          bool
}

func newShow(a *app) *cobra.Command {
	s := showing{app: a}
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show all that Redis keeps of a key: limits, holds, slots, waiters, blocks",
		Long: `Show reads all that Redis keeps of a key, without knowing its policies, and
writes nothing.

A bucket is stored under a label, and how much of it is used depends on its
rate: without --policies show says when it is full. With them it names the
bucket, and the units that are used.

It looks at every key of the server that has the key: SCAN in steps of 1,000.
The exit code is 5 if nothing is there.`,
		Example:           "  headgate show acme/user-1\n  headgate show acme --below --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return s.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&s.policies, "policies", "", "file of plans that names buckets and their limits")
	f.StringVar(&s.name, "name", "", "name of the plan in the file (its default)")
	f.BoolVar(&s.below, "below", false, "also show the keys below this one")
	_ = cmd.MarkFlagFilename("policies", "yaml", "yml", "json")
	return cmd
}

func (s *showing) run(ctx context.Context, text string) error {
	key, err := parseKey(text)
	if err != nil {
		return err
	}
	known := make(map[string]named)
	if s.policies != "" {
		plan, _, err := readPlan(s.policies, s.name)
		if err != nil {
			return err
		}
		known = labelsOf(plan.Limits)
	}
	l, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	reader := &stored.Reader{Client: l.client, Prefix: l.prefix, Timeout: s.timeout}
	subject, err := reader.Subject(ctx, key.String(), s.below)
	if err != nil {
		return err
	}
	v := viewOf(key, subject, known)
	if s.json {
		err = writeJSON(s.out, v)
	} else {
		s.print(v)
	}
	if err == nil && v.isEmpty() {
		return answer(exitNothing)
	}
	return err
}

// named is a policy of a label.
type named struct {
	policy string
	limit  core.Algorithm
}

// labelsOf returns the policies of buckets by their labels.
func labelsOf(limits map[string]core.Algorithm) map[string]named {
	all := make(map[string]named)
	for name, limit := range limits {
		tag := ""
		switch l := limit.(type) {
		case core.TokenBucket:
			if tag = "tb2"; l.Rate == 0 {
				tag = "tf2"
			}
		case core.LeakyBucket:
			tag = "lb2"
		default:
			continue
		}
		policy, _, _ := strings.Cut(name, "/") // that of a model counts under the policy's name
		if label := stored.LabelOf(policy, tag); policy == name || all[label].policy == "" {
			all[label] = named{policy, limit}
		}
	}
	return all
}

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
	details   string
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
func viewOf(key core.Key, s *stored.Subject, known map[string]named) *subjectView {
	v := &subjectView{
		Key: formatKey(key), Path: key.String(), At: stamp(s.At), Limits: []limitView{},
		Slots: []slotsView{}, Others: []othersView{}, Below: s.Below,
	}
	for i := range s.Entries {
		one := limitOf(&s.Entries[i], known)
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
			v.Limit, v.Used = &limit, &used
		}
	}
	var details []string
	for _, d := range e.Details {
		name := strings.ReplaceAll(d.Name, " ", "_")
		if d.Time.IsZero() {
			v.Details[name] = d.Number
			details = append(details, fmt.Sprintf("%s %s", d.Name, count(d.Number)))
		} else {
			v.Details[name] = stamp(d.Time)
			details = append(details, fmt.Sprintf("%s %s", d.Name, clock(d.Time)))
		}
	}
	for _, h := range e.Holds {
		v.Holds = append(v.Holds, holdView{h.ID, h.Units, seconds(h.Left)})
		details = append(details, fmt.Sprintf("%s held for %s", count(h.Units), span(h.Left)))
	}
	for _, r := range e.Adjusted.Raises {
		v.Raises = append(v.Raises, raiseView{r.Units, seconds(r.Left)})
		details = append(details, fmt.Sprintf("raised by %s for %s", count(r.Units), span(r.Left)))
	}
	v.details = strings.Join(details, ", ")
	return v
}

// print writes tables.
func (s *showing) print(v *subjectView) {
	fmt.Fprintf(s.out, "%s at %s UTC\n", printable(v.Key), clock(time.Time(v.At)))
	if v.isEmpty() {
		fmt.Fprintln(s.out, "Redis keeps nothing of it")
	}
	if len(v.Limits) > 0 {
		fmt.Fprintln(s.out)
		t := newTable(s.out, "KEY", "LIMIT", "ALGORITHM", "USED", "UNTOUCHED IN", "TTL", "DETAILS")
		for _, l := range v.Limits {
			t.add(l.Key, l.title(), l.Algorithm, l.used(), l.rest(), span(time.Duration(l.TTL)), l.details)
		}
		_ = t.Flush()
	}
	for i := range v.Slots {
		fmt.Fprintln(s.out)
		v.Slots[i].print(s.out)
	}
	if len(v.Others) > 0 {
		fmt.Fprintln(s.out)
	}
	for _, o := range v.Others {
		fmt.Fprintf(s.out, "%s: %s\n", o.Kind, printable(o.Redis))
	}
	if v.Below > 0 {
		fmt.Fprintf(s.out, "\n%s keys of Redis are about keys below it: see --below\n", count(int64(v.Below)))
	}
}

// title names a limit: a bucket by its label if its policy is not known.
func (l *limitView) title() string {
	if l.Policy == "" {
		return "#" + l.Label
	}
	return l.Policy
}

func (l *limitView) used() string {
	switch {
	case l.Used != nil && l.Limit != nil:
		return fmt.Sprintf("%s of %s", count(*l.Used), count(*l.Limit))
	case l.Used != nil:
		return count(*l.Used)
	case l.Stored > 0:
		return "at most " + count(l.Stored)
	}
	return "-"
}

func (l *limitView) rest() string {
	switch {
	case l.Blocked > 0:
		return "blocked for " + span(time.Duration(l.Blocked))
	case l.Rest == 0 && l.Used == nil:
		return "-"
	}
	return span(time.Duration(l.Rest))
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
