package plans

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// flight is one attempt to learn about a tenant. Callers that need it share it.
type flight struct {
	done   chan struct{}
	last   *known // before
	result known  // with the epoch and the change as it began; the rest once done is closed
}

// grace is how much longer than its Timeouts an attempt may take, in a process that is short of
// CPU. A Resolve that takes longer does not heed its context.
const grace = time.Second

// know returns what is known of a tenant, and learns it if it is not fresh.
func (p *Plans) know(ctx context.Context, id identity) (*known, error) {
	d := p.tenants.digest(id.name)
	s := p.tenants.shard(d)
	if t := s.use(d); t != nil && t.unchanged(p.epoch.Load()) && p.now() < t.known.until {
		return &t.known, nil
	}
	return p.learn(ctx, s, d, id)
}

// learn waits until something fresh is known of a tenant. After a failure nobody waits for the next
// attempts, as long as nothing is said to have changed and the failure is younger than TTL.
func (p *Plans) learn(ctx context.Context, s *shard, d digest, id identity) (*known, error) {
	late := time.NewTimer(2*p.cfg.Timeout + grace)
	defer late.Stop()
	for first := true; ; first = false {
		s.mu.Lock()
		t := s.find(d)
		if t == nil {
			if p.ctx.Err() != nil {
				s.mu.Unlock()
				return nil, ErrClosed
			}
			t = s.take(d)
		}
		epoch, change := p.epoch.Load(), t.change.Load()
		k, unchanged := &t.known, t.unchanged(epoch)
		if unchanged && p.now() < k.until {
			s.mu.Unlock()
			return k, nil
		}
		retry := unchanged && k.failed && p.now() < k.until+p.cfg.TTL
		f := t.flight
		if f == nil {
			next := &flight{done: make(chan struct{}), last: k}
			next.result = known{epoch: epoch, change: change}
			if p.run(retry, func() { p.fly(ctx, s, t, next, id) }) {
				t.flight, f = next, next
			}
		}
		s.mu.Unlock()
		switch {
		case k.until > 0 && (retry || f == nil):
			return k, nil
		case f == nil:
			return nil, ErrClosed
		}
		select {
		case <-f.done:
			// An attempt that began before a change may have read the state before it. The next one
			// begins after this call.
			if !first || f.result.epoch == epoch && f.result.change == change {
				return &f.result, nil
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("plans: %w", ctx.Err())
		case <-late.C:
			if k.until == 0 && p.cfg.OnFailure == Refuse {
				return nil, fmt.Errorf("plans: resolve: %w", context.DeadlineExceeded)
			}
			return k, nil // the last known plan, or the default plan
		}
	}
}

// fly learns about a tenant.
func (p *Plans) fly(ctx context.Context, s *shard, t *tenant, f *flight, id identity) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // several callers wait for it
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	p.fill(ctx, &f.result, f.last, id)
	s.mu.Lock()
	s.learned(t, f.result)
	s.mu.Unlock()
	close(f.done)
}

// fill learns about a tenant, of which last is what was known.
func (p *Plans) fill(ctx context.Context, k, last *known, id identity) {
	k.plan, k.resolved = last.plan, last.resolved
	tenant := id.tenant()
	ttl := p.cfg.TTL - rand.N(p.cfg.TTL/10+1)

	override, err := p.readOverride(ctx, id.name, last.override)
	if err != nil {
		k.failed, k.override = true, last.override
		if p.store.healthy() { // otherwise the feed tells of it
			p.tell(Event{Kind: EventOverrideFailed, Tenant: tenant, Err: err})
		}
	} else {
		k.override = override
		p.tellOfOverride(tenant, last.override, override)
	}
	if k.override != nil && k.override.until > 0 {
		ttl = min(ttl, max(0, k.override.until-p.now()))
	}
	set := p.current.Load()
	if o := k.override; o.holds(p) && o.Plan != "" && set.plans[o.Plan] == nil {
		err := fmt.Errorf("%w: the override names %.80q", ErrUnknownPlan, o.Plan)
		p.tell(Event{Kind: EventOverrideFailed, Tenant: tenant, Err: err})
	}
	switch o := k.override; {
	case p.cfg.Resolve == nil:
	case o.holds(p) && set.plans[o.Plan] != nil:
		k.unasked = true
	case last.answered > p.now() && last.epoch == k.epoch && last.change == k.change:
		k.answered = last.answered // only the override is not known
	default:
		name, err := p.resolve(ctx, set, tenant)
		if err == nil {
			k.plan, k.resolved, k.answered = name, true, p.now()+ttl
			break
		}
		k.failed = true
		if !k.resolved && p.cfg.OnFailure == Refuse {
			k.err = err
		}
		p.tell(Event{Kind: EventResolveFailed, Tenant: tenant, Err: err})
	}
	if k.failed {
		ttl = min(ttl, retryAfter)
	}
	k.until = max(1, p.now()+ttl) // not 0, which says that nothing is known
}

// resolve calls Resolve, whose result it checks.
func (p *Plans) resolve(ctx context.Context, set *Set, tenant string) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil { // nobody else could recover it in this goroutine
			err = fmt.Errorf("plans: resolve: panic: %v", v)
		}
	}()
	name, err = p.cfg.Resolve(ctx, tenant)
	if err != nil {
		return "", fmt.Errorf("plans: resolve: %w", err)
	}
	if name == "" {
		return "", nil
	}
	plan := set.plans[name]
	if plan == nil {
		return "", fmt.Errorf("%w: Resolve returned %.80q", ErrUnknownPlan, name)
	}
	return plan.name, nil // is the same string for all tenants
}
