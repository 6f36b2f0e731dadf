package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/internal/inspect"
	"github.com/headgate/headgate/internal/stored"
	"github.com/headgate/headgate/plans"
)

// planned is the flags of commands that need the limits of a key.
type planned struct {
	*app
	policies, name, tenant, anchor string
}

// noAnchor is the anchor of a tenant without a subscription.
const noAnchor = "none"

func (p *planned) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(
		&p.policies, "policies", "",
		"file of plans, see docs/plans.md, for limits that programs do not state: those of plans",
	)
	f.StringVar(&p.name, "name", "", "name of the plan in the file that the tenant has (its default)")
	f.StringVar(
		&p.tenant, "tenant", "", "name of the tenant whose override holds (the outermost part of KEY)",
	)
	f.StringVar(&p.anchor, "anchor", "", "when a period of the tenant's subscription begins, such as 2026-01-31, "+
		"\"2026-01-31 09:00 Europe/Berlin\" (UTC without a time zone) or none")
}

// set returns the plans of the file, and the name of the plan of the flags. Without a file that is
// an empty plan.
func (p *planned) set() (set *plans.Set, name string, err error) {
	if p.policies != "" {
		return readPlan(p.policies, p.name)
	}
	if p.name != "" {
		return nil, "", usagef("--name needs --policies")
	}
	set, err = plans.NewSet(plans.SetConfig{Default: "none", Plans: map[string]plans.Plan{"none": {}}})
	return set, "none", err
}

// readPlan returns the plans of a file, and the name of one of them, which is that of the default plan
// if it is empty.
func readPlan(file, name string) (*plans.Set, string, error) {
	set, err := plans.ReadSet(file)
	if err != nil {
		return nil, "", usagef("%w", err)
	}
	name = cmp.Or(name, set.Default())
	if _, ok := set.Plan(name); !ok {
		return nil, "", usagef("%s has no plan %q: it has %s", file, name, strings.Join(set.Names(), ", "))
	}
	return set, name, nil
}

// known is what is known of the limits of a key: what programs state, and the plan of its tenant
// with the override.
type known struct {
	stated   []inspect.Stated
	plan     core.Plan
	name     string // of the plan; empty without a file
	override bool
	limits   []string // names of the limits of the plan
}

// limits asks what is known of the limits of a key.
func (p *planned) limits(ctx context.Context, key core.Key) (k *known, err error) {
	set, name, err := p.set()
	if err != nil {
		return nil, err
	}
	at, err := p.begins()
	if err != nil {
		return nil, err
	}
	k = new(known)
	if k.stated, err = p.stated(ctx); err != nil {
		return nil, err
	}
	subscription := plans.Subscription{Plan: name, Anchor: at}
	book, err := plans.New(plans.Config{
		Set: set, Client: p.client, Prefix: p.prefix, Timeout: min(p.timeout, 500*time.Millisecond),
		OnFailure:    plans.OnFailureRefuse,
		Subscription: func(context.Context, string) (plans.Subscription, error) { return subscription, nil },
	})
	if err != nil {
		return nil, err
	}
	defer book.Close()
	outermost, _, _ := strings.Cut(key.String()[1:], "}") // the hash of a part if Redis has that alone
	tenant := cmp.Or(p.tenant, append(key.Parts(), outermost)[0])
	override, is, err := book.Override(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if k.override = is; p.policies != "" {
		name = cmp.Or(override.Plan, name)
		k.name = name
	}
	own, ok := set.Plan(name)
	if !ok {
		return nil, usagef("the override of %s names the plan %q, which %s does not have", tenant, name, p.policies)
	}
	if k.plan, err = book.For(ctx, tenant); err != nil {
		return nil, err
	}
	all := make(map[string]core.Algorithm)
	for _, limits := range []map[string]core.Algorithm{own.Limits, override.Limits} {
		maps.Copy(all, limits)
		for name, limit := range limits {
			if _, subscribed := limit.(plans.Subscribed); subscribed && p.anchor == "" {
				return nil, usagef("the periods of %s begin with the subscription of the tenant: "+
					"say --anchor 2026-01-31, or --anchor none if it has no subscription", name)
			}
		}
	}
	k.limits = slices.Sorted(maps.Keys(all))
	return k, nil
}

// begins returns the anchor of the flags, zero if the tenant has none.
func (p *planned) begins() (time.Time, error) {
	if p.anchor == "" || p.anchor == noAnchor {
		return time.Time{}, nil
	}
	fields, in := strings.Fields(p.anchor), time.UTC
	if n := len(fields); n > 1 {
		if zone, err := time.LoadLocation(fields[n-1]); err == nil {
			in, fields = zone, fields[:n-1]
		}
	}
	for _, layout := range []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, time.RFC3339Nano} {
		if at, err := time.ParseInLocation(layout, strings.Join(fields, " "), in); err == nil {
			return at.In(in), nil
		}
	}
	return time.Time{}, usagef("--anchor is %q: it must be a day such as 2026-01-31, a time such as "+
		"\"2026-01-31 09:00 Europe/Berlin\", or none", p.anchor)
}

// stated asks which policies programs state.
func (c *connection) stated(ctx context.Context) (all []inspect.Stated, err error) {
	err = c.within(ctx, func(ctx context.Context) (err error) {
		all, err = inspect.ReadStated(ctx, c.client, c.names())
		return err
	})
	return all, err
}

// policyOf returns a policy of a name and a limit.
func policyOf(name string, limit core.Algorithm) (*core.Policy, error) {
	return core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: limit, Raisable: inspect.IsQuota(limit)})
}

// blockPolicy returns a policy that sees and sets blocks. What it has of a Block matters only after
// a block: when a key starts again with the first length.
func blockPolicy(name string) (*core.Policy, error) {
	return core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.Block{
		Strikes: 100, Within: time.Hour, For: time.Second, Most: time.Second, Forgive: time.Hour,
	}})
}

// looked is what show and why find out of a key.
type looked struct {
	*known
	stands  *stored.Subject // at a path that the command chooses
	subject *inspect.Subject
}

// lookup looks up how a key stands under the limits that are known, under the blocks that stand in Redis,
// and at semaphores. Keys are those that count; nil are the key and those around it.
func (p *planned) lookup(
	ctx context.Context, key core.Key, stands *stored.Subject, semaphores []string, keys []core.Key,
) (v *looked, err error) {
	v = &looked{stands: stands}
	if v.known, err = p.limits(ctx, key); err != nil {
		return nil, err
	}
	cfg := inspect.Config{Gate: p.gate, Partial: true}
	cfg.Plan = func(context.Context, core.Key) (core.Plan, error) { return v.plan, nil }
	if keys != nil {
		cfg.Keys = func(*core.Policy, core.Key) []core.Key { return keys }
	}
	if cfg.Policies, err = policiesOf(v.known, v.stands); err != nil {
		return nil, usagef("%w", err)
	}
	for _, name := range semaphores {
		s, err := semaphore.New(p.gate, semaphore.Config{Name: name})
		if err != nil {
			return nil, usagef("%w", err)
		}
		cfg.Semaphores = append(cfg.Semaphores, s)
	}
	i, err := inspect.New(cfg, "headgate")
	if err != nil {
		return nil, err
	}
	if v.subject, err = i.Lookup(ctx, key); err != nil {
		return nil, err
	}
	return v, v.fault()
}

// fault returns the error of what could not be asked. That a limit is not known is none.
func (v *looked) fault() error {
	errs := []error{v.subject.Outage}
	for _, err := range v.subject.Faults {
		if !errors.As(err, new(*inspect.UnknownLimit)) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// isOnce reports whether a policy or a semaphore is one of a Once.
func isOnce(name string) bool { return strings.HasSuffix(name, ".once") }

// anyModel reports whether the limit of a name is not for one model alone.
func anyModel(name string) bool { return !strings.Contains(name, "/") }

// policiesOf returns the policies that programs state, those of a plan that they do not state, and
// those of other blocks that stand in Redis.
func policiesOf(k *known, stands *stored.Subject) (all []*core.Policy, err error) {
	have := make(map[string]bool)
	add := func(p *core.Policy, fault error) {
		if err = cmp.Or(err, fault); fault == nil {
			all, have[p.Name()] = append(all, p), true
		}
	}
	for _, s := range k.stated {
		if s.Err == nil || s.Policy != nil && k.plan.Algorithm(s.Name) != nil {
			add(s.Policy, nil)
		}
	}
	for _, name := range k.limits {
		if !have[name] && anyModel(name) {
			add(policyOf(name, k.plan.Algorithm(name)))
		}
	}
	for _, c := range stands.Counts {
		if c.Tag == "bl1" && !have[c.Of] && !isOnce(c.Of) {
			add(blockPolicy(c.Of))
		}
	}
	return all, err
}
