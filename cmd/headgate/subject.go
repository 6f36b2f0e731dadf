package main

import (
	"context"
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

// planned is the flags of commands that need the limits of a plan.
type planned struct {
	*app
	policies, name, tenant string
}

func (p *planned) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.policies, "policies", "", "file of plans, see docs/plans.md (required)")
	f.StringVar(&p.name, "name", "", "name of the plan in the file that the tenant has (its default)")
	f.StringVar(
		&p.tenant, "tenant", "", "name of the tenant whose override holds (the outermost part of KEY)",
	)
	_ = cmd.MarkFlagRequired("policies")
	_ = cmd.MarkFlagFilename("policies", "yaml", "yml", "json")
	_ = cmd.RegisterFlagCompletionFunc("name", func(
		*cobra.Command, []string, string,
	) ([]cobra.Completion, cobra.ShellCompDirective) {
		set, err := plans.ReadSet(p.policies)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return set.Names(), cobra.ShellCompDirectiveNoFileComp
	})
}

// book returns the plans of the file, in which every tenant has the plan of --name, and overrides.
func (p *planned) book(l *link) (*plans.Book, *plans.Set, error) {
	set, err := plans.ReadSet(p.policies)
	if err != nil {
		return nil, nil, usagef("%w", err)
	}
	name := p.name
	if name == "" {
		name = set.Default()
	}
	if _, ok := set.Plan(name); !ok {
		return nil, nil, usagef(
			"%s has no plan %q: it has %s", p.policies, name, strings.Join(set.Names(), ", "),
		)
	}
	book, err := plans.New(plans.Config{
		Set: set, Client: l.client, Prefix: p.prefix, Timeout: min(p.timeout, 500*time.Millisecond),
		Resolve: func(context.Context, string) (string, error) { return name, nil },
	})
	return book, set, err
}

// tenantOf returns the name of the tenant of a key. It is empty if Redis has the hash of it alone.
func (p *planned) tenantOf(key core.Key) string {
	if p.tenant != "" {
		return p.tenant
	}
	if parts := key.Parts(); len(parts) > 0 {
		return parts[0]
	}
	return ""
}

// plan returns the limits of the tenant, with its override, and the names of those that are not for
// one model alone. It asks for the override itself: Book.For does without one that comes late.
func (p *planned) plan(
	ctx context.Context, book *plans.Book, set *plans.Set, tenant string,
) (plan plans.Plan, names []string, err error) {
	name := p.name
	if name == "" {
		name = set.Default()
	}
	var override plans.Override
	if tenant != "" {
		if override, _, err = book.Override(ctx, tenant); err != nil {
			return plan, nil, err
		}
	}
	if override.Plan != "" {
		name = override.Plan
	}
	plan, ok := set.Plan(name)
	if !ok {
		return plan, nil, usagef("the override of %s names the plan %q, which %s does not have", tenant,
			name, p.policies)
	}
	if plan.Limits == nil {
		plan.Limits = make(map[string]core.Algorithm)
	}
	maps.Copy(plan.Limits, override.Limits)
	for _, name := range slices.Sorted(maps.Keys(plan.Limits)) {
		if !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	return plan, names, nil
}

// policyOf returns a policy of a name and a limit. Holds are those that stand in Redis: for as long
// as the longest of them lasts, what they hold may come back.
func policyOf(name string, limit core.Algorithm, holds []stored.Hold) (*core.Policy, error) {
	cfg := core.PolicyConfig{Name: name, Algorithm: limit, Raisable: inspect.IsQuota(limit)}
	for _, h := range holds {
		cfg.Hold = max(cfg.Hold, h.Left, time.Millisecond)
	}
	return core.NewPolicy(cfg)
}

// blockPolicy returns a policy that sees and sets blocks. What it has of a Block matters only after
// a block: when a key starts again with the first length.
func blockPolicy(name string, forgive time.Duration) (*core.Policy, error) {
	return core.NewPolicy(core.PolicyConfig{Name: name, Algorithm: core.Block{
		Strikes: 100, Within: time.Hour, For: time.Second, Most: time.Second, Forgive: forgive,
	}})
}

// inspector returns an Inspector of a key: of the limits of its plan, and, if stands is not nil, of
// the blocks and the semaphores that stand in Redis. Semaphores are those of the names, or all.
func (p *planned) inspector(
	l *link, book *plans.Book, plan plans.Plan, names []string, stands *stored.Subject,
	semaphores []string,
) (*inspect.Inspector, error) {
	cfg := inspect.Config{Gate: l.gate, Plans: book, Tenants: func(key core.Key) []string {
		if t := p.tenantOf(key); t != "" {
			return []string{t}
		}
		return nil
	}}
	cfg.Plan = func(context.Context, core.Key) (core.Plan, error) { return plan, nil }
	if stands == nil {
		stands = new(stored.Subject)
	}
	var err error
	if cfg.Policies, err = policiesOf(plan, names, stands); err != nil {
		return nil, err
	}
	for _, s := range stands.Slots {
		if len(semaphores) == 0 && !isOnce(s.Semaphore) {
			cfg.Semaphores, err = withSemaphore(cfg.Semaphores, l, s.Semaphore)
		}
	}
	for _, name := range semaphores {
		if err == nil {
			cfg.Semaphores, err = withSemaphore(cfg.Semaphores, l, name)
		}
	}
	if err != nil {
		return nil, usagef("%w", err)
	}
	return inspect.New(cfg, "headgate")
}

// isOnce reports whether a policy or a semaphore is one of a Once.
func isOnce(name string) bool { return strings.HasSuffix(name, ".once") }

// policiesOf returns the policies of a plan, and those of blocks that stand in Redis.
func policiesOf(
	plan plans.Plan, names []string, stands *stored.Subject,
) (all []*core.Policy, err error) {
	holds, blocks := make(map[string][]stored.Hold), make(map[string]bool)
	for _, e := range stands.Entries {
		holds[e.Policy] = append(holds[e.Policy], e.Holds...)
		if e.Algorithm == stored.Algorithm("bl1") && !isOnce(e.Policy) {
			blocks[e.Policy] = !slices.Contains(names, e.Policy)
		}
	}
	for _, name := range names {
		policy, err := policyOf(name, plan.Algorithm(name), holds[name])
		if err != nil {
			return nil, err
		}
		all = append(all, policy)
	}
	for _, name := range slices.Sorted(maps.Keys(blocks)) {
		if !blocks[name] {
			continue
		}
		policy, err := blockPolicy(name, time.Hour)
		if err != nil {
			return nil, err
		}
		all = append(all, policy)
	}
	return all, nil
}

// withSemaphore returns semaphores with one more.
func withSemaphore(
	all []*semaphore.Semaphore, l *link, name string,
) ([]*semaphore.Semaphore, error) {
	s, err := semaphore.New(l.gate, semaphore.Config{Name: name})
	if err != nil {
		return all, err
	}
	return append(all, s), nil
}
