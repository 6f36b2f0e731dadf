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
		Use:   "why KEY --policies FILE",
		Short: "Say why the next request of a key would be denied, and when it would pass",
		Long: `Why asks Redis how a key stands under each limit of its plan, without spending
anything, and says which rules would deny its next request, and the second at
which they open.

The keys around it count too: a request of acme/user-1 may be denied by what
acme has spent. So do blocks, and the semaphores at which somebody holds or
waits. An override of the plan in Redis holds.

The exit code is 0 if the request would pass, and 1 if it would not.`,
		Example:           "  headgate why acme/user-1 --policies plans.yaml --name pro",
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
	book, set, err := w.book(l)
	if err != nil {
		return err
	}
	defer book.Close()
	plan, names, err := w.plan(ctx, book, set, w.tenantOf(key))
	if err != nil {
		return err
	}
	reader := &stored.Reader{Client: l.client, Prefix: l.prefix, Timeout: w.timeout}
	stands, err := reader.Subject(ctx, stored.Outermost(key.String()), true)
	if err != nil {
		return err
	}
	i, err := w.inspector(l, book, plan, names, stands, w.semaphores)
	if err != nil {
		return err
	}
	s, err := i.Lookup(ctx, key)
	if err != nil {
		return err
	}
	if err := errors.Join(append(s.Faults, s.Outage)...); err != nil {
		return err
	}
	v := verdictOf(s)
	if w.json {
		err = writeJSON(w.out, v)
	} else {
		w.print(v)
	}
	if err == nil && !v.Passes {
		return answer(exitNo)
	}
	return err
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
		Reasons: []reasonView{}, Limits: []stands{},
	}
	for _, t := range s.Tenants {
		v.Plan, v.Override = t.Plan, v.Override || t.Override != nil
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
	if v.Plan != "" {
		plan = " under plan " + v.Plan
		if v.Override {
			plan += " and its override"
		}
	}
	if v.Passes {
		fmt.Fprintf(w.out, "the next request of %s passes%s\n", printable(v.Key), printable(plan))
	} else {
		fmt.Fprintf(w.out, "the next request of %s is denied%s\n", printable(v.Key), printable(plan))
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
	if len(v.Limits) == 0 {
		return
	}
	fmt.Fprintln(w.out)
	t := newTable(w.out, "LIMIT", "KEY", "ALGORITHM", "USED", "REMAINING", "ALL BACK IN")
	for _, l := range v.Limits {
		used, remaining := "-", "-"
		if l.known {
			used, remaining = fmt.Sprintf("%s of %s", count(l.Used), count(l.Limit)), count(l.Remaining)
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
