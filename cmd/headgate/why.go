package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
		Example: "  headgate why acme/user-1\n  headgate why acme/user-1 --policies plans.yaml --name pro",
		Args:    cobra.ExactArgs(1),
		RunE:    a.onKey(w.run),
	}
	w.flags(cmd)
	cmd.Flags().StringSliceVar(
		&w.semaphores, "semaphore", nil, "semaphores of which the request takes a slot (all)",
	)
	return cmd
}

func (w *explaining) run(ctx context.Context, key core.Key, _ []string) error {
	stands, err := w.reader.Subject(ctx, stored.Outermost(key.String()), true)
	if err != nil {
		return err
	}
	semaphores := w.semaphores
	if len(semaphores) == 0 {
		semaphores = slices.DeleteFunc(stands.Semaphores, isOnce)
	}
	found, err := w.lookup(ctx, key, stands, semaphores, nil)
	if err != nil {
		return err
	}
	v, code := found.verdict(), exitOK
	switch {
	case len(v.Reasons) > 0:
		code = exitNo
	case !v.Passes:
		code = exitUnknown
	}
	return w.answer(v, code, func() { w.print(v) })
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
	Limits     []limitView  `json:"limits"`
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

// unknowns returns the limits that are not known.
func (l *looked) unknowns() []unknownView {
	all := []unknownView{}
	note := func(u *inspect.UnknownLimit) { all = append(all, unknownView{u.Policy, u.Error()}) }
	for _, err := range l.subject.Faults { // others have ended the command
		if u := new(inspect.UnknownLimit); errors.As(err, &u) {
			note(u)
		}
	}
	for _, one := range l.stated {
		if one.Err != nil && l.plan.Algorithm(one.Name) == nil {
			note(&inspect.UnknownLimit{Policy: one.Name, Err: one.Err})
		}
	}
	if len(l.stated) == 0 && !slices.ContainsFunc(l.limits, anyModel) {
		text := inspect.StatedNames(nil)
		for i := range l.subject.Slots {
			if s := &l.subject.Slots[i]; !s.IsFull() {
				text += fmt.Sprintf("; %s has a slot for it", s.Semaphore.Name())
			}
		}
		all = append(all, unknownView{Text: text})
	}
	return all
}

type reasonView struct {
	Rule       string  `json:"rule"`
	Key        string  `json:"key"`
	Text       string  `json:"text"`
	RetryAfter seconds `json:"retry_after_seconds"`
	Opens      stamp   `json:"opens"`
	IsSlot     bool    `json:"is_slot"`
}

// verdict returns what why writes.
func (l *looked) verdict() *verdictView {
	s := l.subject
	l.stands.Counts = slices.DeleteFunc(l.stands.Counts, func(c stored.Count) bool {
		return !stored.Within(s.Key.String(), c.Path)
	})
	v := &verdictView{
		Key: inspect.FormatKey(s.Key), At: stamp(s.At), RetryAfter: seconds(s.Why.RetryAfter),
		Opens: stamp(s.Why.Opens), Estimated: s.Why.Estimated, Reasons: []reasonView{}, Limits: []limitView{},
		Plan: l.name, Override: l.override, Unknown: l.unknowns(), Counts: l.unknown(),
	}
	v.Passes = s.Why.Passes() && len(v.Unknown) == 0
	for i := range s.Why.Reasons {
		r := &s.Why.Reasons[i]
		v.Reasons = append(v.Reasons, reasonView{
			Rule: r.Rule(), Key: inspect.FormatKey(r.Key()), Text: r.Text(inspect.FormatKey),
			RetryAfter: seconds(r.RetryAfter), Opens: stamp(r.Opens), IsSlot: r.Slots != nil,
		})
	}
	for i := range s.Limits {
		v.Limits = append(v.Limits, limitOf(&s.Limits[i]))
	}
	return v
}

func (w *explaining) print(v *verdictView) {
	plan := ""
	if v.Plan != "" {
		plan = " under plan " + v.Plan
	}
	if v.Override {
		plan += " with its override"
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
	printCounts(w.out, v.Counts)
	printLimits(w.out, v.Limits)
}

// opening says when a rule opens.
func opening(isSlot bool, d time.Duration, at time.Time) string {
	switch {
	case isSlot:
		return "It opens when a slot is released."
	case d == core.Never:
		return "It does not open."
	}
	return fmt.Sprintf("It opens at %s UTC, in %s.", clock(at), inspect.Wait(d))
}
