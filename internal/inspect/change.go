package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/internal/hub"
)

// charge returns a charge on a key under a policy, with the limit of the plan of the key.
func (i *Inspector) charge(ctx context.Context, p *core.Policy, key core.Key) (core.Charge, error) {
	s := Subject{Key: key}
	plan, _ := i.plan(ctx, &s)
	l := i.limitOf(p, key, plan)
	return l.Charge(), errors.Join(s.Faults...) // under another limit, another state would change
}

// Reset forgets what a key has spent under a policy, and lifts a block. The errors are those of
// core.Gate.Reset, and those of a plan that is not known.
func (i *Inspector) Reset(ctx context.Context, p *core.Policy, key core.Key) error {
	c, err := i.charge(ctx, p, key)
	if err != nil {
		return err
	}
	return i.cfg.Gate.Reset(ctx, c)
}

// Adjustable reports whether Give works under a limit.
func Adjustable(a core.Algorithm) bool {
	switch a.(type) {
	case core.TokenBucket, core.LeakyBucket, core.FixedWindow, core.Calendar:
		return true
	}
	return false
}

// IsQuota reports whether Gate.Adjust works under a limit.
func IsQuota(a core.Algorithm) bool { return core.Inside(hub.Pass{}).IsQuota(a) }

// Give gives units back to a key under a policy, at most those that are used, or charges them if
// the number is negative. It returns by how many units less is used then: 0 if the id was given to
// an earlier Give, which a quota knows. The id has 1 to 128 bytes. The errors are those of
// core.Gate.Adjust. They wrap core.ErrCharge where the limit does not count what can be given back.
func (i *Inspector) Give(
	ctx context.Context, p *core.Policy, key core.Key, units int64, id string,
) (given int64, err error) {
	l, err := i.Limit(ctx, p, key)
	if err != nil {
		return 0, err
	}
	used := l.Result.Used
	if p.Hold() > 0 && units > 0 { // held units come back to their holders
		if units = min(units, used-l.Result.Held); units <= 0 {
			return 0, nil
		}
	}
	c := l.Charge()
	if !IsQuota(l.Algorithm) {
		return core.Inside(hub.Pass{}).Give(ctx, i.cfg.Gate, c, units)
	}
	applied, err := i.cfg.Gate.Adjust(ctx, core.Adjustment{
		ID: id, Policy: p, Key: key, Limit: c.Limit, Units: -units,
	})
	if err != nil || !applied {
		return 0, err
	}
	return min(units, used), nil
}

// Raise raises the limit of a key by some units until a time, or takes an earlier raise with that
// end back if the number is negative. It reports whether it did: an id is applied once. The errors
// are those of core.Gate.Adjust.
func (i *Inspector) Raise(
	ctx context.Context, p *core.Policy, key core.Key, units int64, until time.Time, id string,
) (applied bool, err error) {
	c, err := i.charge(ctx, p, key)
	if err != nil {
		return false, err
	}
	return i.cfg.Gate.Adjust(ctx, core.Adjustment{
		ID: id, Policy: p, Key: key, Limit: c.Limit, Raise: units, Until: until,
	})
}

// Block blocks a key for a time under a policy whose algorithm is a core.Block, and returns for how long it
// is blocked then: longer if its block was to end later. The errors are those of core.Blocklist.Block, and
// that of Redis if only this process blocks the key.
func (i *Inspector) Block(
	ctx context.Context, p *core.Policy, key core.Key, d time.Duration,
) (rest time.Duration, err error) {
	list, err := core.NewBlocklist(i.cfg.Gate, p)
	if err != nil {
		return 0, err
	}
	return core.Inside(hub.Pass{}).Block(ctx, list, key, d)
}

// Unblock lifts the block of a key, and returns for how long it would have lasted, 0 if there was none.
func (i *Inspector) Unblock(
	ctx context.Context, p *core.Policy, key core.Key,
) (rest time.Duration, err error) {
	l, err := i.Limit(ctx, p, key)
	if err != nil || l.Result.Allowed {
		return 0, err
	}
	return l.Result.RetryAfter, i.Reset(ctx, p, key)
}

// Blocked returns the keys that are blocked under a policy, at most a number of them.
func (i *Inspector) Blocked(
	ctx context.Context, p *core.Policy, most int,
) (all []core.BlockedKey, err error) {
	list, err := core.NewBlocklist(i.cfg.Gate, p)
	if err != nil {
		return nil, err
	}
	seen := make(map[core.Key]bool)
	for k, err := range list.All(ctx) {
		if err != nil {
			return all, err
		}
		if !seen[k.Key] {
			seen[k.Key] = true
			all = append(all, k)
		}
		if len(all) == most {
			break
		}
	}
	return all, nil
}
