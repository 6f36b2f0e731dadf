package nethttp

import (
	"time"

	"github.com/headgate/headgate/core"
)

// keptBy returns the charger of the count that is kept of Policy, or of one of Then, or nil.
func (r *Rule) keptBy(i int) *charger {
	if i >= len(r.kept) || r.kept[i] == nil {
		return nil
	}
	return &charger{rule: r, policy: r.kept[i], advert: advertise(r.kept[i])}
}

// keep appends, to all charges of a request, one for each count that is kept of them, on a key of the
// present period. After follow has replaced a charge, keep replaces the count that was kept of it.
func (x *Exchange) keep(charges []core.Charge) ([]core.Charge, error) {
	x.charged = x.charged[:len(charges)]
	for i, c := range x.charged {
		counted := &charges[i]
		calendar, ok := counted.Limit.(core.Calendar)
		if !ok || c.by.kept == nil {
			continue
		}
		policy := c.by.kept.policy
		limit := x.limitUnder(policy)
		if limit == nil {
			continue // the plan keeps nothing
		}
		period, err := calendar.Period(x.now())
		if err != nil {
			return nil, err
		}
		parts := counted.Key.Parts()
		key, err := core.NewKey(parts[0], append(parts[1:], period.String())...)
		if err != nil {
			return nil, err
		}
		charges = append(charges, core.Charge{Policy: policy, Key: key, Cost: counted.Cost, Limit: limit})
		x.charged = append(x.charged, charged{by: c.by.kept, cost: c.cost})
	}
	return charges, nil
}

// now returns the time by which periods are chosen: that of this process, or of the Gate in memory.
func (x *Exchange) now() time.Time {
	if clock := inside.Of(x.guard.cfg.Gate).Clock; clock != nil {
		return time.UnixMicro(clock())
	}
	return time.Now()
}
