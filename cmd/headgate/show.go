package main

import (
	"context"
	"fmt"
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
		RunE:              action(s.run),
	}
	f := cmd.Flags()
	f.StringVar(&s.policies, "policies", "", "file of plans that names buckets and their limits")
	f.StringVar(&s.name, "name", "", "name of the plan in the file (its default)")
	f.BoolVar(&s.below, "below", false, "also show the keys below this one")
	_ = cmd.MarkFlagFilename("policies", "yaml", "yml", "json")
	return cmd
}

func (s *showing) run(ctx context.Context, args []string) error {
	key, err := parseKey(args[0])
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
		fmt.Fprintf(
			s.out, "\n%s keys of Redis are about keys below it: see --below\n", count(int64(v.Below)),
		)
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
