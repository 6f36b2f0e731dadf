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

// keptCharge returns the charge of the count that is kept of a charge by c, on a key of the present period.
// It reports false if nothing is kept.
func (x *Exchange) keptCharge(c *charger, counted *core.Charge) (kept core.Charge, ok bool, err error) {
	if c.kept == nil {
		return kept, false, nil
	}
	limit := x.limitUnder(c.kept.policy)
	calendar, ok := counted.Limit.(core.Calendar)
	if limit == nil || !ok {
		return kept, false, nil // the plan has another limit, or keeps nothing
	}
	period, err := calendar.Period(x.now())
	if err != nil {
		return kept, false, err
	}
	parts := counted.Key.Parts()
	key, err := core.NewKey(parts[0], append(parts[1:], period.String())...)
	return core.Charge{Policy: c.kept.policy, Key: key, Cost: counted.Cost, Limit: limit}, err == nil, err
}

// now returns the time by which periods are chosen: that of this process, or of the Gate in memory.
func (x *Exchange) now() time.Time {
	if clock := inside.Of(x.guard.cfg.Gate).Clock; clock != nil {
		return time.UnixMicro(clock())
	}
	return time.Now()
}

// appendKept appends the charge that is kept of a charge by c. If nothing is kept of that one, such as under
// an override that is no calendar, it is that of one that may follow, and spends nothing.
func (x *Exchange) appendKept(
	charges []core.Charge, c *charger, counted core.Charge, cost int64,
) ([]core.Charge, error) {
	for c != nil {
		kept, ok, err := x.keptCharge(c, &counted)
		if err != nil {
			return nil, err
		}
		if ok {
			x.charged = append(x.charged, charged{by: c.kept, cost: cost})
			return append(charges, kept), nil
		}
		if c = x.following(c); c != nil {
			counted.Limit, counted.Cost, cost = x.limitUnder(c.policy), core.NoCost, 0
		}
	}
	return charges, nil
}

// keepInstead lets the charge that is kept of another one be that of counted, which follows, on the key of
// its period. charges are those behind counted. If nothing is kept of counted, it spends nothing.
func (x *Exchange) keepInstead(next *charger, counted *core.Charge, cost int64, charges []core.Charge, by []charged) {
	if len(charges) == 0 || by[0].by.rule != next.rule { // the plan keeps nothing
		return
	}
	kept, ok, err := x.keptCharge(next, counted)
	if !ok || err != nil {
		charges[0].Cost = core.NoCost
		by[0].cost = 0
		return
	}
	charges[0] = kept
	by[0] = charged{by: next.kept, cost: cost}
}
