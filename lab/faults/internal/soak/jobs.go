package soak

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/once"
	"github.com/headgate/headgate/core/semaphore"
	"github.com/headgate/headgate/plans"
)

// job is what one kind of callers does again and again.
type job struct {
	callers int
	pause   time.Duration
	may     func(error) bool // whether the matrix allows an error
	do      func(context.Context) error
}

// never allows no error: an outage is no error of a decision.
func never(error) bool { return false }

// outage allows what an outage makes of a call that needs Redis, and no misconfiguration.
func outage(err error) bool {
	return !errors.Is(err, core.ErrMisconfigured) && !errors.Is(err, core.ErrCharge) &&
		!errors.Is(err, semaphore.ErrRequest) && !errors.Is(err, core.ErrClosed)
}

func (p *program) jobsOf() map[string]job {
	const often, seldom = 20 * time.Millisecond, 100 * time.Millisecond
	return map[string]job{
		"decide":     {4, often, never, p.decide},
		"several":    {2, often, never, p.several},
		"reserve":    {4, often, outage, p.reserve},
		"wait":       {2, often, outage, p.wait},
		"quota":      {2, often, never, p.spendQuota},
		"adjust":     {1, seldom, outage, p.adjust},
		"login":      {2, often, never, p.login},
		"block":      {1, seldom, outage, p.block},
		"plan":       {2, often, never, p.plan},
		"override":   {1, seldom, outage, p.override},
		"slot":       {12, often, outage, p.slot},
		"admit":      {4, often, outage, p.admit},
		"mutex":      {4, often, outage, p.lock},
		"once":       {4, often, outage, p.once},
		"filter":     {2, often, outage, p.filter},
		"holders":    {1, seldom, outage, p.holders},
		"request":    {6, often, never, p.request},
		"completion": {6, often, never, p.complete},
	}
}

func (p *program) decide(context.Context) error {
	policy := p.limits[int(p.user.Add(1))%len(p.limits)]
	_, err := p.gate.Decide(context.Background(), core.Charge{Policy: policy, Key: p.key("decide"), Cost: 1})
	return err
}

func (p *program) several(context.Context) error {
	var charges []core.Charge
	for _, policy := range p.limits[:6] {
		charges = append(charges, core.Charge{Policy: policy, Key: p.key("several"), Cost: 1})
	}
	_, _, err := p.gate.SpendUpTo(context.Background(), 3, charges...)
	return err
}

func (p *program) reserve(ctx context.Context) error {
	r, _, err := p.gate.Reserve(context.Background(), 0, core.Charge{Policy: p.budget, Key: p.key("budget"), Cost: 50})
	if err != nil || r == nil {
		return err
	}
	sleep(ctx, time.Duration(p.user.Add(1)%40)*10*time.Millisecond)
	if p.user.Load()%3 == 0 {
		return r.Cancel(ctx)
	}
	return r.Settle(ctx, 80)
}

func (p *program) wait(ctx context.Context) error {
	l, err := core.NewLimiter(p.gate, p.limits[0])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err = l.Wait(ctx, p.key("wait"))
	return err
}

func (p *program) spendQuota(context.Context) error {
	_, err := p.gate.Decide(context.Background(), core.Charge{Policy: p.quota, Key: p.key("quota"), Cost: 3})
	return err
}

func (p *program) login(context.Context) error {
	_, err := p.gate.Decide(context.Background(), core.Charge{Policy: p.logins, Key: p.key("login"), Cost: 1})
	return err
}

func (p *program) block(ctx context.Context) error {
	key := p.key("login")
	if err := p.blocks.Block(ctx, key, time.Second); err != nil {
		return err
	}
	for _, err := range p.blocks.All(ctx) {
		if err != nil {
			return err
		}
	}
	return p.blocks.Forget(ctx, key)
}

func (p *program) adjust(ctx context.Context) error {
	_, err := p.gate.Adjust(ctx, core.Adjustment{
		ID: fmt.Sprintf("%d-%d", p.id, p.user.Add(1)%1000), Policy: p.quota, Key: p.key("quota"),
		Units: 1, Raise: 5, Until: time.Now().Add(2 * time.Second),
	})
	return err
}

func (p *program) plan(ctx context.Context) error {
	plan, err := p.book.For(context.Background(), fmt.Sprintf("tenant%d", p.user.Add(1)%30))
	if err != nil {
		return err
	}
	_, err = p.gate.Decide(context.Background(), core.Charge{
		Policy: p.api, Key: p.key("plan"), Cost: 1, Limit: plan.Algorithm(p.api.Name()),
	})
	return err
}

func (p *program) override(ctx context.Context) error {
	return p.book.SetOverride(ctx, fmt.Sprintf("tenant%d", p.user.Add(1)%30), plans.Override{
		Plan: "pro", Until: time.Now().Add(3 * time.Second),
	})
}

func (p *program) slot(ctx context.Context) error {
	tenant := core.Must(core.NewKey("streams"))
	user := core.Must(core.NewKey("streams", string('a'+rune(p.user.Add(1)%5))))
	l, err := p.caps.Acquire(ctx, semaphore.Request{
		Caps:    []semaphore.Cap{{Key: tenant, Limit: 6}, {Key: user, Limit: 3, Share: 2, Floor: 1}},
		MaxWait: time.Duration(p.user.Load()%3) * time.Second,
	})
	if err != nil {
		return err
	}
	sleep(l.Context(), time.Duration(p.user.Add(1)%20)*20*time.Millisecond)
	return l.Release(ctx)
}

func (p *program) admit(ctx context.Context) error {
	l, _, err := p.caps.Admit(ctx, semaphore.Request{Caps: []semaphore.Cap{{Key: p.key("admit"), Limit: 2}}},
		core.Charge{Policy: p.limits[0], Key: p.key("admit"), Cost: 1})
	if err != nil || l == nil {
		return err
	}
	return l.Release(ctx)
}

func (p *program) lock(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	l, err := p.mutex.Lock(ctx, core.Must(core.NewKey("report")))
	if err != nil {
		return err
	}
	sleep(ctx, 30*time.Millisecond)
	return l.Release(ctx)
}

func (p *program) once(ctx context.Context) error {
	err := p.jobs.Do(ctx, p.key("job"), 500*time.Millisecond, func(ctx context.Context) error {
		sleep(ctx, 20*time.Millisecond)
		return nil
	})
	if errors.Is(err, once.ErrDone) {
		return nil
	}
	return err
}

func (p *program) filter(ctx context.Context) error {
	_, err := p.seen.TestAndAdd(ctx, p.key("item").String())
	return err
}

func (p *program) holders(ctx context.Context) error {
	_, _, err := p.caps.Holders(ctx, core.Must(core.NewKey("streams")))
	return err
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
