package plans

import (
	"fmt"
	"maps"
	"slices"

	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/core/semaphore"
)

// Plan is what tenants of one kind may do. It is a [core.Plan].
type Plan struct {
	// Limits are the limits by the names of their policies. Under a policy that is not here, the
	// tenant has the policy's own Algorithm. A slash and a model behind the name, as in
	// requests/large, make it the limit of requests for that model; an llm.Meter asks for it first.
	// Beside a limit, names of Then and of KeptName are what answers for it and what is kept of it.
	Limits map[string]core.Algorithm
	// Caps are the caps by name. A cap that is not here has its own limit. A model may stand behind
	// the name, as for Limits.
	Caps map[string]Cap
}

// Cap is how many slots of a cap a tenant may hold, and how it divides the slots of the cap before
// it with other tenants. A number that is 0 is the cap's own, and at least one is not.
type Cap struct {
	Limit int64 `json:"limit,omitempty"` // at most semaphore.MaxLimit
	Share int64 `json:"share,omitempty"` // at most semaphore.MaxShare; see semaphore.Cap
	Floor int64 `json:"floor,omitempty"` // at most Limit, if that is not 0; see semaphore.Cap
}

// Algorithm returns the limit under the policy of a name, or nil.
func (p Plan) Algorithm(policy string) core.Algorithm { return p.Limits[policy] }

// Cap returns the numbers of the cap of a name, or zeros.
func (p Plan) Cap(name string) (limit, share, floor int64) {
	c := p.Caps[name]
	return c.Limit, c.Share, c.Floor
}

// clone returns a copy of a plan that shares nothing with it.
func (p Plan) clone() Plan {
	p.Limits, p.Caps = maps.Clone(p.Limits), maps.Clone(p.Caps)
	for name, limit := range p.Limits {
		if log, ok := limit.(core.SlidingLog); ok {
			p.Limits[name] = core.SlidingLog{Windows: slices.Clone(log.Windows)}
		}
	}
	return p
}

// check returns the faults of a plan. The path ends in a dot.
func (p Plan) check(path string) (faults []fault) {
	for _, name := range sortedKeys(p.Limits) {
		faults = append(faults, checkLimitName(path+"limits", name)...)
		faults = append(faults, checkLimit(path+"limits."+name, p.Limits[name])...)
		if s, ok := p.Limits[name].(Subscribed); ok && !s.Anchor.IsZero() {
			faults = append(faults, fault{path + "limits." + name + ".anchor",
				"is a time: it must be zero, because the subscription has it"})
		}
	}
	for _, name := range sortedKeys(p.Caps) {
		faults = append(faults, checkLimitName(path+"caps", name)...)
		faults = append(faults, p.Caps[name].check(path+"caps."+name)...)
	}
	return faults
}

func (c Cap) check(path string) (faults []fault) {
	number := func(field string, n, least, most int64) {
		if n < least || n > most {
			faults = append(faults, fault{path + field,
				fmt.Sprintf("is %d: it must be between %d and %d", n, least, most)})
		}
	}
	if c.Share == 0 && c.Floor == 0 {
		number("", c.Limit, 1, semaphore.MaxLimit)
		return faults
	}
	floor := c.Limit
	if floor <= 0 {
		floor = semaphore.MaxLimit
	}
	number(".limit", c.Limit, 0, semaphore.MaxLimit)
	number(".share", c.Share, 0, semaphore.MaxShare)
	number(".floor", c.Floor, 0, floor)
	return faults
}
