package main

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
)

// resetting is the flags of reset.
type resetting struct {
	*app
	policies []string
}

func newReset(a *app) *cobra.Command {
	r := resetting{app: a}
	cmd := &cobra.Command{
		Use:   "reset KEY",
		Short: "Forget what a key has spent, and lift its blocks",
		Long: `Reset forgets what a key has spent, under all limits or those of --policy, and
lifts blocks. Raised limits stay. It needs no plans: it looks for what Redis
keeps of the key. What a once.Once has handled stays so, and is handled no second
time, unless --policy names the Once with .once behind it, such as payments.once.

Processes remember a denial for up to a second. The exit code is 5 if Redis
keeps nothing of the key.`,
		Example: "  headgate reset acme/user-1 --policy api",
		Args:    cobra.ExactArgs(1),
		RunE:    a.onKey(r.run),
	}
	a.asks(cmd)
	cmd.Flags().StringSliceVar(&r.policies, "policy", nil, "policies to reset (all but those of a Once)")
	return cmd
}

func (r *resetting) run(ctx context.Context, key core.Key, _ []string) error {
	stands, err := r.reader.Subject(ctx, key.String(), false)
	if err != nil {
		return err
	}
	w, err := r.chosen(stands, key)
	if err != nil {
		return err
	}
	v := change{Key: inspect.FormatKey(key), Of: w.titles, Changed: len(w.titles) > 0}
	titles := strings.Join(w.titles, ", ")
	if !v.Changed {
		return r.changed(v, exitNothing, "Redis keeps nothing of %s that could be reset", v.Key)
	}
	if err := r.confirm("Forget what %s has spent under %s?", v.Key, titles); err != nil {
		return err
	}
	if err := r.forget(ctx, w); err != nil {
		return err
	}
	return r.changed(v, exitNothing, "%s has spent nothing under %s now", v.Key, titles)
}

// wiped is what a reset forgets.
type wiped struct {
	titles  []string      // of limits
	names   []string      // of keys of Redis
	buckets []core.Charge // that are not all of a bundle
}

// buckets are a limit of each algorithm whose states stand in bundles.
var buckets = []core.Algorithm{
	core.TokenBucket{Rate: 1, Per: time.Second, Burst: 1}, core.TokenBucket{Burst: 1},
	core.LeakyBucket{Rate: 1, Per: time.Second, Capacity: 1},
}

// chosen returns what the flags ask for.
func (r *resetting) chosen(s *stored.Subject, key core.Key) (w wiped, err error) {
	w.titles = []string{}
	labels := make(map[string]*core.Policy)
	for _, name := range r.policies {
		for _, limit := range buckets {
			p, err := policyOf(name, limit)
			if err != nil {
				return w, usagef("--policy: %w", err)
			}
			labels[stored.Label(suffixOf(p))] = p
		}
	}
	asked := func(name string) bool {
		return slices.Contains(r.policies, name) || len(r.policies) == 0 && !isOnce(name)
	}
	for _, c := range s.Counts {
		switch p := labels[c.Label]; {
		case p != nil:
			w.titles = append(w.titles, p.Name())
			w.buckets = append(w.buckets, core.Charge{Policy: p, Key: key})
		case asked(c.Of):
			w.titles = append(w.titles, cmp.Or(c.Of, "#"+c.Label))
		}
	}
	for _, f := range s.Keys {
		switch f.Kind {
		case stored.State, stored.Bundle, stored.Holds, stored.Answer: // and not adjustments: raises stay
			if asked(f.Of) {
				w.names = append(w.names, f.Redis)
			}
		}
	}
	return w, nil
}

// forget forgets what was chosen.
func (r *resetting) forget(ctx context.Context, w wiped) error {
	for _, c := range w.buckets {
		if err := r.gate.Reset(ctx, c); err != nil {
			return err
		}
	}
	if len(w.names) == 0 {
		return nil
	}
	return r.within(ctx, func(ctx context.Context) error { return r.client.Del(ctx, w.names...).Err() })
}
