package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
)

// explaining is the flags of why.
type explaining struct {
	planned
	semaphores []string
}

func newWhy(a *app) *cobra.Command {
	w := explaining{planned: planned{app: a}}
	cmd := &cobra.Command{
		Use:   "why KEY",
		Short: "Say why the next request of a key would be denied, and when it would pass",
		Long: `Why asks Redis which policies programs state, and how a key stands under each,
without spending anything. It says which rules would deny its next request, and
the second at which they open.

The keys around it count too: a request of acme/user-1 may be denied by what
acme has spent. So do blocks, and the semaphores at which somebody holds or
waits. An override of the plan in Redis holds. Where programs give keys limits
of their own, such as those of a plan, they are in a file of --policies, or not
known.

The exit code is 0 if the request would pass, 1 if it would not, and 6 if a
limit is not known.`,
		Example:           "  headgate why acme/user-1\n  headgate why acme/user-1 --policies plans.yaml --name pro",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              action(w.run),
	}
	w.flags(cmd)
	cmd.Flags().StringSliceVar(
		&w.semaphores, "semaphore", nil, "semaphores of which the request takes a slot (all)",
	)
	return cmd
}

func (w *explaining) run(ctx context.Context, args []string) error {
	key, err := parseKey(args[0])
	if err != nil {
		return err
	}
	l, err := w.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	k, err := w.limits(ctx, l, key)
	if err != nil {
		return err
	}
	reader := &stored.Reader{Client: l.client, Prefix: l.prefix, Timeout: w.timeout}
	stands, err := reader.Subject(ctx, stored.Outermost(key.String()), true)
	if err != nil {
		return err
	}
	i, err := w.inspector(l, k, stands, w.semaphores)
	if err != nil {
		return err
	}
	s, err := i.Lookup(ctx, key)
	if err != nil {
		return err
	}
	v := verdictOf(s)
	if err := v.doubt(s, k, stands); err != nil {
		return err
	}
	if w.json {
		err = writeJSON(w.out, v)
	} else {
		w.print(v)
	}
	switch {
	case err != nil:
		return err
	case len(v.Reasons) > 0:
		return answer(exitNo)
	case !v.Passes:
		return answer(exitUnknown)
	}
	return nil
}

// verdictView is the answer of why.
type verdictView struct {
	Key        string       `json:"key"`
	At         stamp        `json:"at"`
	Passes     bool         `json:"passes"`
	RetryAfter seconds      `json:"retry_after_seconds"` // null: waiting does not help
	Opens      stamp        `json:"opens"`
	Estimated  bool         `json:"estimated"`
	Reasons    []reasonView `json:"reasons"`
	Limits     []stands     `json:"limits"`
	Plan       string       `json:"plan"`
	Override   bool         `json:"override"`
	// Unknown are the limits that are not known, and Counts what fits no known limit.
	Unknown []unknownView `json:"unknown"`
	Counts  []countView   `json:"unknown_counts"`
}

// unknownView is a limit that is not known.
type unknownView struct {
	Policy string `json:"policy"`
	Text   string `json:"text"`
}

// countView is a count in Redis whose limit is not known.
type countView struct {
	Policy    string  `json:"policy"` // or the label of a bucket
	Key       string  `json:"key"`
	Algorithm string  `json:"algorithm"`
	Used      *int64  `json:"used"` // null where that depends on the limit
	Rest      seconds `json:"untouched_after_seconds"`
}

// doubt adds what is not known. It returns the error of what could not be asked.
func (v *verdictView) doubt(s *inspect.Subject, k *known, stands *stored.Subject) error {
	errs := []error{s.Outage}
	note := func(u *inspect.UnknownLimit) {
		v.Unknown = append(v.Unknown, unknownView{u.Policy, u.Error()})
	}
	for _, err := range s.Faults {
		if u := new(inspect.UnknownLimit); errors.As(err, &u) {
			note(u)
		} else {
			errs = append(errs, err)
		}
	}
	vague := make(map[string]bool)
	for _, one := range k.stated {
		vague[one.Name] = one.Policy == nil || one.Varies
		if one.Policy == nil && k.plan.Limits[one.Name] == nil {
			note(&inspect.UnknownLimit{Policy: one.Name, Err: one.Err})
		}
	}
	if len(k.stated) == 0 && len(k.names) == 0 {
		v.Unknown = append(v.Unknown, unknownView{Text: inspect.StatedNames(nil)})
	}
	v.Plan, v.Override = k.name, k.override
	v.Passes = v.Passes && len(v.Unknown) == 0
	for i := range stands.Entries {
		e := &stands.Entries[i]
		if !stored.Within(s.Key.String(), e.Path) || k.plan.Limits[k.policyOf(e)] != nil {
			continue
		}
		if !k.counts(e) || vague[k.policyOf(e)] {
			one := countView{Policy: k.policyOf(e), Key: formatPath(e.Path), Algorithm: e.Algorithm, Rest: seconds(e.Rest)}
			if e.Known {
				one.Used = &e.Used
			}
			v.Counts = append(v.Counts, one)
		}
	}
	return errors.Join(errs...)
}

// policyOf returns the name of the policy of an entry, or the label of a bucket.
func (k *known) policyOf(e *stored.Entry) string {
	if e.Policy != "" {
		return e.Policy
	}
	for _, s := range k.stated {
		if isOneOf(e.Label, s.Name, bucketTags...) {
			return s.Name
		}
	}
	return "#" + e.Label
}

type reasonView struct {
	Rule       string  `json:"rule"`
	Key        string  `json:"key"`
	Text       string  `json:"text"`
	RetryAfter seconds `json:"retry_after_seconds"`
	Opens      stamp   `json:"opens"`
	IsSlot     bool    `json:"is_slot"`
}

// stands is how a key stands under a limit.
type stands struct {
	Policy    string  `json:"policy"`
	Key       string  `json:"key"`
	Limit     int64   `json:"limit"`
	Used      int64   `json:"used"`
	Remaining int64   `json:"remaining"`
	Raised    int64   `json:"raised"`
	Held      int64   `json:"held"`
	Next      seconds `json:"next_after_seconds"`
	Reset     seconds `json:"reset_after_seconds"`
	algorithm core.Algorithm
	known     bool
}

func verdictOf(s *inspect.Subject) *verdictView {
	v := &verdictView{
		Key: formatKey(s.Key), At: stamp(s.At), Passes: s.Why.Passes(),
		RetryAfter: seconds(s.Why.RetryAfter), Opens: stamp(s.Why.Opens), Estimated: s.Why.Estimated,
		Reasons: []reasonView{}, Limits: []stands{}, Unknown: []unknownView{}, Counts: []countView{},
	}
	for i := range s.Why.Reasons {
		r := &s.Why.Reasons[i]
		one := reasonView{
			Rule: r.Rule(), Text: r.Text(), RetryAfter: seconds(r.RetryAfter), Opens: stamp(r.Opens),
			IsSlot: r.Slots != nil,
		}
		if r.Limit != nil {
			one.Key = formatKey(r.Limit.Key)
		} else {
			one.Key = formatKey(r.Slots.Key)
		}
		v.Reasons = append(v.Reasons, one)
	}
	for i := range s.Limits {
		l := &s.Limits[i]
		r := &l.Result
		v.Limits = append(v.Limits, stands{
			l.Policy.Name(), formatKey(l.Key), r.Limit, r.Used, r.Remaining, r.Raised, r.Held,
			seconds(r.NextAfter), seconds(r.ResetAfter), l.Algorithm, r.Known,
		})
	}
	return v
}

func (w *explaining) print(v *verdictView) {
	plan := ""
	switch {
	case v.Plan != "" && v.Override:
		plan = " under plan " + v.Plan + " and its override"
	case v.Plan != "":
		plan = " under plan " + v.Plan
	case v.Override:
		plan = " under the override"
	}
	switch {
	case v.Passes:
		fmt.Fprintf(w.out, "the next request of %s passes%s\n", printable(v.Key), printable(plan))
	case len(v.Reasons) > 0:
		fmt.Fprintf(w.out, "the next request of %s is denied%s\n", printable(v.Key), printable(plan))
	default:
		fmt.Fprintf(w.out, "whether the next request of %s passes%s is not known\n",
			printable(v.Key), printable(plan))
	}
	for _, u := range v.Unknown {
		fmt.Fprintf(w.out, "  not known: %s\n", printable(u.Text))
	}
	for _, r := range v.Reasons {
		fmt.Fprintf(
			w.out, "  %s: %s %s\n", r.Rule, printable(r.Text),
			opening(r.IsSlot, time.Duration(r.RetryAfter), time.Time(r.Opens)),
		)
	}
	if len(v.Reasons) > 1 && !time.Time(v.Opens).IsZero() {
		fmt.Fprintf(w.out, "the limits admit it from %s UTC on\n", clock(time.Time(v.Opens)))
	}
	if v.Estimated {
		fmt.Fprintln(w.out, "an estimate: running reservations hold units that they may give back")
	}
	for _, c := range v.Counts {
		used := "spent"
		if c.Used != nil {
			used = inspect.Number(*c.Used) + " used"
		}
		fmt.Fprintf(w.out, "Redis has a count of %s at %s that fits no limit that is known: %s, %s, untouched in %s\n",
			printable(c.Policy), printable(c.Key), c.Algorithm, used, span(time.Duration(c.Rest)))
	}
	if len(v.Limits) == 0 {
		return
	}
	fmt.Fprintln(w.out)
	t := newTable(w.out, "LIMIT", "KEY", "ALGORITHM", "USED", "REMAINING", "ALL BACK IN")
	for _, l := range v.Limits {
		used, remaining := "-", "-"
		if l.known {
			used, remaining = fmt.Sprintf("%s of %s", inspect.Number(l.Used), inspect.Number(l.Limit)), inspect.Number(l.Remaining)
		}
		t.add(l.Policy, l.Key, describe(l.algorithm), used, remaining, span(time.Duration(l.Reset)))
	}
	_ = t.Flush()
}

// opening says when a rule opens.
func opening(isSlot bool, wait time.Duration, at time.Time) string {
	switch {
	case isSlot:
		return "It opens when a slot is released."
	case wait == core.Never:
		return "It does not open."
	}
	return fmt.Sprintf("It opens at %s UTC, in %s.", clock(at), span(wait))
}
