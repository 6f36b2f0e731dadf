package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/stored"
)

// resetting is the flags of reset.
type resetting struct {
	*app
	changing
	policies []string
}

func newReset(a *app) *cobra.Command {
	r := resetting{app: a}
	cmd := &cobra.Command{
		Use:   "reset KEY",
		Short: "Forget what a key has spent, and lift its blocks",
		Long: `Reset forgets what a key has spent, under all limits or those of --policy, and
lifts blocks. Raised limits stay. It needs no plans: it looks for what Redis
keeps of the key.

Processes remember a denial for up to a second. The exit code is 5 if Redis
keeps nothing of the key.`,
		Example:           "  headgate reset acme/user-1 --policy api",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              action(r.run),
	}
	r.flags(cmd)
	cmd.Flags().StringSliceVar(&r.policies, "policy", nil, "policies to reset (all)")
	return cmd
}

// resetView is the answer of reset.
type resetView struct {
	Key    string   `json:"key"`
	Limits []string `json:"limits"`
}

func (r *resetting) run(ctx context.Context, args []string) error {
	key, err := parseKey(args[0])
	if err != nil {
		return err
	}
	l, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	reader := &stored.Reader{Client: l.client, Prefix: l.prefix, Timeout: r.timeout}
	stands, err := reader.Subject(ctx, key.String(), false)
	if err != nil {
		return err
	}
	entries := r.chosen(stands.Entries)
	v := resetView{Key: formatKey(key), Limits: []string{}}
	if len(entries) > 0 {
		err := r.confirm(&r.changing, "Forget what %s has spent under %s", v.Key, listed(entries))
		if err != nil {
			return err
		}
	}
	for _, e := range entries {
		if err := r.forget(ctx, l, key, e); err != nil {
			return err
		}
		v.Limits = append(v.Limits, entryTitle(e))
	}
	if r.json {
		err = writeJSON(r.out, v)
	} else if len(entries) > 0 {
		fmt.Fprintf(r.out, "%s has spent nothing under %s now\n", printable(v.Key), listed(entries))
	} else {
		fmt.Fprintf(r.out, "Redis keeps nothing of %s that could be reset\n", printable(v.Key))
	}
	if err == nil && len(entries) == 0 {
		return answer(exitNothing)
	}
	return err
}

// chosen returns the entries of the policies, and marks buckets with the names of theirs.
func (r *resetting) chosen(all []stored.Entry) (some []stored.Entry) {
	for _, e := range all {
		for _, name := range r.policies {
			for _, tag := range bucketTags {
				if e.Label != "" && e.Label == stored.LabelOf(name, tag) {
					e.Policy = name
				}
			}
		}
		if len(r.policies) == 0 || slices.Contains(r.policies, e.Policy) {
			some = append(some, e)
		}
	}
	return some
}

// bucketTags are the tags of limits that stand in a bundle.
var bucketTags = []string{"tb2", "tf2", "lb2"}

// forget forgets one limit of a key. A bucket whose policy is not known goes with its bundle, if
// all is reset.
func (r *resetting) forget(ctx context.Context, l *link, key core.Key, e stored.Entry) error {
	names := []string{e.Redis}
	switch {
	case e.Label != "" && e.Policy != "":
		return r.forgetBucket(ctx, l, key, e)
	case e.Label == "" && e.Redis == "": // holds alone
		return nil
	case e.Label == "":
		names = append(names, e.Redis+":h2", e.Redis+":an1")
	}
	return r.within(ctx, func(ctx context.Context) error { return l.client.Del(ctx, names...).Err() })
}

// forgetBucket forgets a bucket, by the policy of its name.
func (r *resetting) forgetBucket(ctx context.Context, l *link, key core.Key, e stored.Entry) error {
	var limit core.Algorithm
	switch e.Label {
	case stored.LabelOf(e.Policy, "tb2"):
		limit = core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1}
	case stored.LabelOf(e.Policy, "tf2"):
		limit = core.TokenBucket{Burst: 1}
	default:
		limit = core.LeakyBucket{Rate: 1, Per: time.Second, Capacity: 1}
	}
	p, err := core.NewPolicy(core.PolicyConfig{Name: e.Policy, Algorithm: limit})
	if err != nil {
		return err
	}
	return l.gate.Reset(ctx, core.Charge{Policy: p, Key: key})
}

func entryTitle(e stored.Entry) string {
	if e.Policy == "" {
		return "#" + e.Label
	}
	return e.Policy
}

func listed(entries []stored.Entry) string {
	var names []string
	for _, e := range entries {
		names = append(names, entryTitle(e))
	}
	return strings.Join(names, ", ")
}
