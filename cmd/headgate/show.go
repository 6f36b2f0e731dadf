package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
)

// showing is the flags of show.
type showing struct {
	planned
	below bool
}

func newShow(a *app) *cobra.Command {
	s := showing{planned: planned{app: a}}
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show all that Redis keeps of a key: limits, holds, slots, waiters, blocks",
		Long: `Show reads all that Redis keeps of a key, and writes nothing.

A bucket is stored under a label, and how much of it is used depends on its
rate. Show names the buckets of policies that programs state in Redis, and those
of a file of plans. It marks a count that fits no limit that it knows.

It looks at every key of the server that has the key: SCAN in steps of 1,000.
The exit code is 5 if nothing is there.`,
		Example:           "  headgate show acme/user-1\n  headgate show acme --below --json",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              action(s.run),
	}
	f := cmd.Flags()
	f.BoolVar(&s.below, "below", false, "also show the keys below this one")
	s.flags(cmd)
	return cmd
}

func (s *showing) run(ctx context.Context, args []string) error {
	key, err := parseKey(args[0])
	if err != nil {
		return err
	}
	l, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	k, err := s.limits(ctx, l, key)
	if err != nil {
		return err
	}
	reader := &stored.Reader{Client: l.client, Prefix: l.prefix, Timeout: s.timeout}
	subject, err := reader.Subject(ctx, key.String(), s.below)
	if err != nil {
		return err
	}
	v := viewOf(key, subject, k)
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
		tag := tagOf(limit)
		if !slices.Contains(bucketTags, tag) {
			continue
		}
		policy, _, _ := strings.Cut(name, "/") // that of a model counts under the policy's name
		if label := stored.LabelOf(policy, tag); policy == name || all[label].policy == "" {
			all[label] = named{policy, limit}
		}
	}
	return all
}

// labels returns the policies of buckets by their labels. One whose limit is not known has none.
func (k *known) labels() map[string]named {
	limits, all := make(map[string]core.Algorithm), make(map[string]named)
	for _, s := range k.stated {
		if s.Policy != nil && !s.Varies {
			limits[s.Name] = s.Policy.Algorithm()
		}
		for _, tag := range bucketTags {
			all[stored.LabelOf(s.Name, tag)] = named{policy: s.Name}
		}
	}
	maps.Copy(limits, k.plan.Limits)
	maps.Copy(all, labelsOf(limits))
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
			s.out, "\n%s keys of Redis are about keys below it: see --below\n", inspect.Number(int64(v.Below)),
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
		return fmt.Sprintf("%s of %s", inspect.Number(*l.Used), inspect.Number(*l.Limit))
	case l.Used != nil:
		return inspect.Number(*l.Used)
	case l.Stored > 0:
		return "at most " + inspect.Number(l.Stored)
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
