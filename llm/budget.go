package llm

import (
	"net/http"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
)

// Budget is a limit on what requests use.
type Budget struct {
	// Policy names the limit. It is required. The Guard's Plan may have another limit under its
	// name. Its Unit decides what counts: UnitTokens,
	// UnitInputTokens, UnitOutputTokens or UnitMicroDollars. Its Hold is required, because without
	// it a process that dies would leave the estimates of its streams spent. The Meter renews it
	// while a request runs, so 30 seconds suit most.
	Policy *core.Policy
	// Key derives whose budget it is. It is required.
	Key keyfunc.Func
	// NoKey decides about a request without a key. The zero value refuses it.
	NoKey nethttp.NoKey
	// Models are the models whose requests the budget counts, by their names in Config.Models or in
	// the files of Config.Prices. It also counts those for a model that has no name there. Empty
	// counts all.
	Models []string
	// Skip skips the budget for the requests for which it returns true. Nil skips none.
	Skip func(*http.Request) bool
}

func (b *Budget) check(at string, cfg *Config, fault func(string, ...any)) {
	for _, name := range b.Models {
		if !cfg.names(name) {
			fault("%s.Models has %q, which is neither in Config.Models nor in Prices", at, name)
		}
	}
	if b.NoKey > nethttp.NoKeySkip {
		fault("%s.NoKey is %d: it must be NoKeyRefuse or NoKeySkip", at, b.NoKey)
	}
	if b.Key == nil {
		fault("%s.Key is nil: say whose budget it is", at)
	}
	if b.Policy == nil || b.Policy.Name() == "" {
		fault("%s.Policy is missing: core.NewPolicy must make it", at)
		return
	}
	if b.Policy.Hold() == 0 {
		fault("%s.Policy has no Hold: a process that dies would leave its estimates spent", at)
	}
	switch b.Policy.Unit() {
	case core.UnitRequests, core.UnitContentBytes:
		fault("%s.Policy counts "+b.Policy.Unit().String()+": make it one of Guard.Rules, or set its Unit", at)
	case core.UnitMicroDollars:
		if len(cfg.Models) == 0 && cfg.Prices == nil {
			fault("%s.Policy counts money, and Models and Prices are empty", at)
		}
	}
}

// skip returns a func that reports whether a budget does not count a request. It may be nil.
func (b *Budget) skip() func(*http.Request) bool {
	if len(b.Models) == 0 {
		return b.Skip
	}
	others, skip := UnlessModel(b.Models...), b.Skip
	return func(r *http.Request) bool { return others(r) || skip != nil && skip(r) }
}

// rules returns a rule of the guard for each budget.
func (m *Meter) rules() []nethttp.Rule {
	var rules []nethttp.Rule
	for i, b := range m.cfg.Budgets {
		unit := b.Policy.Unit()
		rules = append(rules, nethttp.Rule{
			Policy: b.Policy, Key: b.Key, NoKey: b.NoKey, Skip: b.skip(), Clamp: true,
			Cost: func(r *http.Request) int64 {
				x := callOf(r.Context())
				if x == nil { // Guard.Charges asks outside of a request
					return 0
				}
				b := x.expected(x.estimate)
				return x.units(unit, &b)
			},
			Settle: func(r *http.Request, _ int, cost int64) int64 {
				if x := callOf(r.Context()); x != nil && x.settled != nil {
					return x.settled[i]
				}
				return cost
			},
		})
	}
	return rules
}

// deriveRunning derives what running charges charge: the budgets of the call that count output. It is
// called before the handler, which may put its server's key in place of the client's. Without charges the
// stream is charged at its end.
func (x *call) deriveRunning(r *http.Request) {
	if x.meter.cfg.ChargeEvery == 0 || !x.request.Stream || x.exempt() {
		return
	}
	all, _ := x.meter.budgets.Charges(r) // which derived the same a moment ago
	for _, c := range all {
		if c.Policy.Unit() != core.UnitInputTokens {
			c.Clamp = false
			x.charges = append(x.charges, c)
		}
	}
}

// chargesOf returns what that much output costs beyond what is charged.
func (x *call) chargesOf(output int64) []core.Charge {
	bill := x.expected(x.estimate)
	bill.Usage.Output = output
	var charges []core.Charge
	for _, c := range x.charges {
		if c.Cost = x.units(c.Policy.Unit(), &bill) - x.held(c.Policy); c.Cost > 0 {
			charges = append(charges, c)
		}
	}
	return charges
}
