package llm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/adapters/nethttp"
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/keyfunc"
	"github.com/headgate/headgate/llm/internal/wire"
)

// complete checks the configuration and fills in the defaults. It returns every fault at once.
func (cfg Config) complete() (Config, error) {
	var errs []error
	fault := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("llm: Config."+format, args...))
	}
	if len(cfg.Budgets) == 0 {
		fault("Budgets is empty")
	}
	if err := cfg.checkGuard(fault); err != nil {
		errs = append(errs, err)
	}
	money := slices.ContainsFunc(cfg.Budgets, func(b Budget) bool {
		return b.Policy != nil && b.Policy.Unit() == core.UnitMicroDollars
	})
	for name, m := range cfg.Models {
		m.check(fmt.Sprintf("Models[%q]", name), money, fault)
	}
	cfg.completeNumbers(fault)
	cfg.checkChoices(fault)
	cfg.Budgets = slices.Clone(cfg.Budgets)
	cfg.Models = maps.Clone(cfg.Models)
	if cfg.Other == nil {
		cfg.Other = http.NotFoundHandler()
	}
	return cfg, errors.Join(errs...)
}

// checkGuard checks the budgets, and the guard with the rules that they become.
func (cfg *Config) checkGuard(fault func(string, ...any)) error {
	names := make(map[string]bool)
	for i, r := range cfg.Guard.Rules {
		if r.Policy == nil {
			continue
		}
		names[r.Policy.Name()] = true
		if r.Policy.Unit() != core.UnitRequests && r.Cost == nil {
			fault("Guard.Rules[%d].Policy counts %v, and Cost is nil: make it one of Budgets",
				i, r.Policy.Unit())
		}
	}
	guard := cfg.Guard
	guard.Rules = slices.Clone(guard.Rules)
	for i, b := range cfg.Budgets {
		at := fmt.Sprintf("Budgets[%d]", i)
		b.check(at, cfg, fault)
		switch {
		case b.Policy == nil || b.Policy.Name() == "":
			continue
		case names[b.Policy.Name()]:
			fault("%s.Policy is named %q, like that of another budget or rule", at, b.Policy.Name())
			continue
		}
		names[b.Policy.Name()] = true
		guard.Rules = append(guard.Rules, nethttp.Rule{Policy: b.Policy, Key: keyfunc.RemoteIP()})
	}
	if len(guard.Rules) == 0 {
		if guard.Gate == nil {
			fault("Guard.Gate is nil")
		}
		return nil
	}
	if _, err := nethttp.NewGuard(guard); err != nil {
		return fmt.Errorf("llm: Config.Guard: %w", err)
	}
	return nil
}

// names reports whether Models or a file of Prices has a model of that name.
func (cfg *Config) names(model string) bool {
	_, known := cfg.Models[model]
	return known || cfg.Prices != nil && cfg.Prices.current.Load().models[model] != nil
}

// completeNumbers checks the numbers and the enumerations, and fills in the defaults.
func (cfg *Config) completeNumbers(fault func(string, ...any)) {
	for _, n := range []struct {
		name        string
		value, most int64
	}{
		{"MaxBody", cfg.MaxBody, wire.MaxCount}, {"MaxOutput", cfg.MaxOutput, wire.MaxCount},
		{"ChargeEvery", cfg.ChargeEvery, wire.MaxCount},
		{"UnknownModel", int64(cfg.UnknownModel), int64(UnknownModelDearest)},
		{"StatedCost", int64(cfg.StatedCost), int64(StatedCostTrust)},
		{"Overrun", int64(cfg.Overrun), int64(OverrunEnd)}, {"Abort", int64(cfg.Abort), int64(AbortDrain)},
	} {
		if n.value < 0 || n.value > n.most {
			fault("%s is %d: it must be between 0 and %d", n.name, n.value, n.most)
		}
	}
	cfg.MaxBody, cfg.MaxOutput = cmp.Or(cfg.MaxBody, 8<<20), cmp.Or(cfg.MaxOutput, 4096)
	if cfg.MaxBodies != 0 && cfg.MaxBodies < cfg.MaxBody {
		fault("MaxBodies is %d: it must be at least MaxBody, %d", cfg.MaxBodies, cfg.MaxBody)
	}
	cfg.MaxBodies = cmp.Or(cfg.MaxBodies, max(256<<20, cfg.MaxBody))
	if cfg.RetryWithin < 0 {
		fault("RetryWithin is %v: it must not be negative", cfg.RetryWithin)
	}
	if cfg.DrainFor < 0 || cfg.DrainFor > 0 && cfg.Abort != AbortDrain {
		fault("DrainFor is %v: it must not be negative, and 0 unless Abort is AbortDrain", cfg.DrainFor)
	}
	cfg.DrainFor = cmp.Or(cfg.DrainFor, 5*time.Minute)
}

// checkChoices checks what belongs together.
func (cfg *Config) checkChoices(fault func(string, ...any)) {
	for i, r := range cfg.Routes {
		r.check(fmt.Sprintf("Routes[%d]", i), fault)
	}
	if cfg.Downgrade != nil && cfg.Guard.Reconsider != nil {
		fault("Downgrade is set, and Guard.Reconsider too: one of them must be")
	}
	if cfg.Overrun == OverrunEnd && cfg.ChargeEvery == 0 {
		fault("Overrun is OverrunEnd, and ChargeEvery is 0: " +
			"no stream would be charged while it runs")
	}
}
