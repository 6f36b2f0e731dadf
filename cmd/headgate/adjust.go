package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/inspect"
)

// adjusting is the flags of adjust.
type adjusting struct {
	planned
	give, charge, raise int64
	until, id           string
	ends                time.Time // of a raise
}

func newAdjust(a *app) *cobra.Command {
	j := adjusting{planned: planned{app: a}}
	cmd := &cobra.Command{
		Use:   "adjust KEY POLICY (--give N | --charge N | --raise N --until TIME)",
		Short: "Give units back, charge them, or raise a limit until a time",
		Long: `Adjust corrects what a key has spent under a policy, or raises its limit for a
time. It asks Redis which policies programs state. Where they give keys limits
of their own, such as those of a plan, --policies names the file of the plans.

--give and --charge work on buckets, fixed windows and calendars. --raise needs
a quota (a calendar, a fixed window, or a bucket with rate 0) whose policy is
Raisable in the application. An adjustment of a quota is applied once for each
--id, so it may be sent again. The exit code is 1 if nothing has changed, as
where programs would not heed it.`,
		Example: `  headgate adjust acme tokens --give 1000
  headgate adjust acme tokens --raise 50000 --until 72h --id ticket-4711`,
		Args:    cobra.ExactArgs(2),
		PreRunE: j.check,
		RunE:    a.onKey(j.run),
	}
	j.flags(cmd)
	a.asks(cmd)
	f := cmd.Flags()
	f.Int64Var(&j.give, "give", 0, "units to give back, at most those that are used")
	f.Int64Var(&j.charge, "charge", 0, "units to charge, whether they fit or not")
	f.Int64Var(&j.raise, "raise", 0, "units by which to raise the limit")
	f.StringVar(
		&j.until, "until", "", "when the raise ends: a time such as 2026-12-31T23:59:59Z, or a duration",
	)
	f.StringVar(&j.id, "id", "", "id of the adjustment (random)")
	cmd.MarkFlagsOneRequired("give", "charge", "raise")
	cmd.MarkFlagsMutuallyExclusive("give", "charge", "raise")
	return cmd
}

// check checks the flags, and fills in when a raise ends and the id.
func (j *adjusting) check(*cobra.Command, []string) error {
	if j.give < 0 || j.charge < 0 || j.raise < 0 {
		return errors.New("--give, --charge and --raise must not be negative")
	}
	if (j.raise != 0) != (j.until != "") {
		return errors.New("--raise needs --until, and --until is for --raise")
	}
	if j.id == "" {
		j.id = "headgate-" + rand.Text()[:12]
	}
	if j.until == "" {
		return nil
	}
	d, err := time.ParseDuration(j.until)
	if err == nil {
		j.ends = time.Now().Add(d)
		return nil
	}
	if j.ends, err = time.Parse(time.RFC3339, j.until); err != nil {
		return fmt.Errorf(
			"--until is %q: it must be a time such as 2026-12-31T23:59:59Z, or a duration such as 72h", j.until)
	}
	return nil
}

func (j *adjusting) run(ctx context.Context, key core.Key, args []string) error {
	k, err := j.limits(ctx, key)
	if err != nil {
		return err
	}
	policy, err := j.policy(k, args[0])
	if err != nil {
		return err
	}
	i, err := inspect.New(inspect.Config{
		Gate: j.gate, Policies: []*core.Policy{policy},
		Plan: func(context.Context, core.Key) (core.Plan, error) { return k.plan, nil },
	}, "headgate")
	if err != nil {
		return err
	}
	o := inspect.Order{
		Op: inspect.OpGive, ID: j.id, Key: key, Policy: policy, Units: j.give + j.charge + j.raise, Until: j.ends,
	}
	switch {
	case j.charge > 0:
		o.Op = inspect.OpTake
	case j.raise > 0:
		o.Op = inspect.OpRaise
	}
	return j.order(ctx, i, &o, exitNo)
}

// policy returns the policy of a name as programs state it, if the limit of the key is known.
func (j *adjusting) policy(k *known, name string) (*core.Policy, error) {
	s, err := inspect.Find(k.stated, name)
	if err != nil {
		return nil, refusef("%w", err)
	}
	if s.Policy == nil || k.plan.Algorithm(name) == nil && (s.Err != nil || s.Varies) {
		u := inspect.UnknownLimit{Policy: name, Err: s.Err}
		return nil, refusef("%w: --policies names a file of plans that has it", &u)
	}
	return s.Policy, nil
}
