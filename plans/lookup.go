package plans

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/core"
)

// identity says which tenant is meant.
type identity struct {
	name  string   // as it stands in the names of Redis keys: the outermost part of a key, escaped
	key   core.Key // whose outermost part it is, if given is empty
	given string
}

// tenant returns the name that the program knows.
func (id *identity) tenant() string {
	if id.given != "" {
		return id.given
	}
	if parts := id.key.Parts(); len(parts) > 0 {
		return parts[0]
	}
	return id.name
}

// outermost returns the outermost part of a key as it stands in the names of Redis keys.
func outermost(key core.Key) string {
	path := key.String()
	if end := strings.IndexByte(path, '}'); end > 0 {
		return path[1:end]
	}
	return ""
}

// named returns the identity of a tenant.
func named(tenant string) (identity, error) {
	if tenant == "" {
		return identity{}, fmt.Errorf("%w: its name is empty", ErrTenant)
	}
	key, err := core.NewKey(tenant)
	return identity{name: outermost(key), given: tenant}, err
}

// whose returns the identity of a key's tenant.
func (p *Plans) whose(ctx context.Context, key core.Key) (identity, error) {
	if p.cfg.Tenant != nil {
		return named(p.cfg.Tenant(ctx, key))
	}
	id := identity{name: outermost(key), key: key}
	if id.name == "" {
		return id, fmt.Errorf("%w: the key is zero", ErrTenant)
	}
	return id, nil
}

// view is what holds for a tenant in one snapshot.
type view struct {
	plan     *plan
	override *Override // that holds now, or nil
	err      error
}

// limit returns the tenant's limit under a policy, or nil if its plan says nothing about it.
func (v *view) limit(policy string) core.Algorithm {
	if v.override != nil {
		if limit, ok := v.override.Limits[policy]; ok {
			return limit
		}
	}
	return v.plan.Limits[policy]
}

// cap returns the tenant's limit of a semaphore, or 0 if its plan says nothing about it.
func (v *view) cap(semaphore string) int64 {
	if v.override != nil {
		if limit, ok := v.override.Caps[semaphore]; ok {
			return limit
		}
	}
	return v.plan.Caps[semaphore]
}

// viewKey finds the view of a tenant in a core.Snapshot.
type viewKey struct {
	plans  *Plans
	tenant string
}

// view returns what holds for a tenant in the snapshot of ctx, or now if it has none. All tenants
// of a snapshot are seen by one Set.
func (p *Plans) view(ctx context.Context, id identity) view {
	return core.Snapshot(ctx, viewKey{p, id.name}, func() view {
		set := core.Snapshot(ctx, p, p.current.Load)
		k, err := p.know(ctx, id)
		if err == nil && k.unasked && p.overridden(set, k) == nil {
			p.tenants.changed(id.name) // Resolve must be asked: the plan of the override is gone
			k, err = p.know(ctx, id)
		}
		if err != nil {
			return view{err: err}
		}
		return p.viewOf(set, k)
	})
}

// overridden returns the plan of a Set that an override gives a tenant, or nil.
func (p *Plans) overridden(set *Set, k *known) *plan {
	if !k.override.holds(p) {
		return nil
	}
	return set.plans[k.override.Plan]
}

// viewOf returns what holds for a tenant by a Set.
func (p *Plans) viewOf(set *Set, k *known) (v view) {
	v.plan = set.standard
	if k.override.holds(p) {
		v.override = &k.override.Override
		if plan := set.plans[v.override.Plan]; plan != nil {
			v.plan = plan
			return v
		}
	}
	if plan := set.plans[k.plan]; plan != nil {
		v.plan = plan
		return v
	}
	switch { // a tenant without a plan of its own, or with one that the Set has no longer
	case k.err != nil:
		v.err = k.err
	case k.plan != "" && p.cfg.OnFailure == Refuse:
		v.err = fmt.Errorf("%w: the Set has %.80q no longer", ErrUnknownPlan, k.plan)
	}
	return v
}

// For returns a function for core.PolicyConfig.For: the limit that the plan of the key's tenant has
// under a policy of this name. It is nil if the plan says nothing about it, so that the policy's
// own Algorithm holds.
func (p *Plans) For(policy string) func(context.Context, core.Key) (core.Algorithm, error) {
	return func(ctx context.Context, key core.Key) (core.Algorithm, error) {
		id, err := p.whose(ctx, key)
		if err != nil {
			return nil, err
		}
		v := p.view(ctx, id)
		if v.err != nil {
			return nil, v.err
		}
		return v.limit(policy), nil
	}
}

// Cap returns the limit that the plan of the key's tenant has for a semaphore, for
// core.Level.Limit. The error wraps ErrNoCap if the plan says nothing about it.
func (p *Plans) Cap(ctx context.Context, key core.Key, semaphore string) (int64, error) {
	id, err := p.whose(ctx, key)
	if err != nil {
		return 0, err
	}
	v := p.view(ctx, id)
	if v.err != nil {
		return 0, v.err
	}
	if n := v.cap(semaphore); n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("%w: plan %s says nothing about %s", ErrNoCap, v.plan.name, semaphore)
}

// RuleLimit returns a function for nethttp.Rule.Limit: the limit that the plan of the request's
// tenant has under a policy of this name, or nil for the policy's own. The function tenant, such as
// a keyfunc.Func, derives the tenant from the request. RuleLimit serves rules whose keys do not
// begin with the tenant. For the others, For is simpler.
func (p *Plans) RuleLimit(
	policy string, tenant func(*http.Request) (string, error),
) func(*http.Request) (core.Algorithm, error) {
	return func(r *http.Request) (core.Algorithm, error) {
		v, err := p.ofRequest(r, tenant)
		if err != nil {
			return nil, err
		}
		return v.limit(policy), nil
	}
}

// CapLimit returns a function for nethttp.Cap.LimitFor: the limit that the plan of the request's
// tenant has for a semaphore of this name, or 0 for Cap.Limit. The function tenant derives the
// tenant from the request.
func (p *Plans) CapLimit(
	semaphore string, tenant func(*http.Request) (string, error),
) func(*http.Request) (int64, error) {
	return func(r *http.Request) (int64, error) {
		v, err := p.ofRequest(r, tenant)
		if err != nil {
			return 0, err
		}
		return v.cap(semaphore), nil
	}
}

// ofRequest returns what holds for the tenant of a request.
func (p *Plans) ofRequest(
	r *http.Request, tenant func(*http.Request) (string, error),
) (view, error) {
	name, err := tenant(r)
	if err != nil {
		return view{}, err
	}
	id, err := named(name)
	if err != nil {
		return view{}, err
	}
	v := p.view(r.Context(), id)
	return v, v.err
}

// Plan returns the name of the plan that a tenant has now.
func (p *Plans) Plan(ctx context.Context, tenant string) (string, error) {
	id, err := named(tenant)
	if err != nil {
		return "", err
	}
	v := p.view(ctx, id)
	if v.err != nil {
		return "", v.err
	}
	return v.plan.name, nil
}

// Set returns the Set that holds now.
func (p *Plans) Set() *Set { return p.current.Load() }
