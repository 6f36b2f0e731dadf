package llm

import (
	"math/big"
	"slices"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/core"
)

// Model is what the tokens of a model count.
type Model struct {
	// Weights are the units of one token under the budgets of tokens, such as an Output of 4 for
	// output that counts four times. The zero value is 1 for each kind.
	Weights Weights
	// Price is the price of a million tokens in micro-dollars, the millionth part of a dollar,
	// under the budgets of money: 3 dollars are 3,000,000. The cost of a request is rounded up
	// once. It is required for a budget of money, unless Free is set.
	Price Weights
	// Free says that the tokens of the model cost no money.
	Free bool
	// MaxOutput replaces Config.MaxOutput. It is at most 1e9. Zero keeps Config.MaxOutput.
	MaxOutput int64
}

// priced is the number of tokens that a price is for.
const priced = 1_000_000

func (m *Model) check(at string, money bool, fault func(string, ...any)) {
	m.Weights.check(at+".Weights", fault)
	m.Price.check(at+".Price", fault)
	switch {
	case m.Free && m.Price != (Weights{}):
		fault("%s is Free, and has a Price", at)
	case money && !m.Free && m.Price == (Weights{}):
		fault("%s has no Price, and a budget counts money: set it, or Free", at)
	}
	if m.MaxOutput < 0 || m.MaxOutput > wire.MaxCount {
		fault("%s.MaxOutput is %d: it must be between 0 and %d", at, m.MaxOutput, wire.MaxCount)
	}
}

// UnknownModel decides about a request for a model that is not in Config.Models.
type UnknownModel uint8

const (
	// UnknownModelRefuse refuses it with 404.
	UnknownModelRefuse UnknownModel = iota
	// UnknownModelDearest counts under each budget what the dearest model would.
	UnknownModelDearest
)

// String returns "refuse" or "dearest".
func (u UnknownModel) String() string { return nameOf([]string{"refuse", "dearest"}, int(u)) }

// modelsFor returns the models that a request for a model may be charged by. It returns none if the
// request is refused.
func (m *Meter) modelsFor(name string) []Model {
	model, known := m.cfg.Models[name]
	switch {
	case known || len(m.cfg.Models) == 0:
		return []Model{model}
	case m.cfg.UnknownModel == UnknownModelDearest:
		return m.dearest
	}
	return nil
}

// costOf returns the units of a usage by the dearest of the models that a request may be for.
func costOf(models []Model, unit core.Unit, u Usage) (most int64) {
	for i := range models {
		most = max(most, models[i].cost(unit, u))
	}
	return most
}

// cost returns the units of a usage.
func (m *Model) cost(unit core.Unit, u Usage) int64 {
	switch unit {
	case core.UnitInputTokens:
		u = u.prompt()
	case core.UnitOutputTokens:
		u = u.answer()
	case core.UnitMicroDollars:
		sum := m.Price.of(u)
		sum.Add(sum, big.NewInt(priced-1))
		return clamp(sum.Div(sum, big.NewInt(priced)))
	}
	return clamp(m.weights().of(u))
}

// weights returns the units of one token of each kind.
func (m *Model) weights() Weights {
	if m.Weights == (Weights{}) {
		return Weights{1, 1, 1, 1}
	}
	return m.Weights
}

// keepDearest adds a model to a set of candidates for the dearest. It drops every model that
// another one outdoes under each kind of token.
func keepDearest(models []Model, m Model) []Model {
	if slices.ContainsFunc(models, func(o Model) bool { return o.dearer(&m) }) {
		return models
	}
	return append(slices.DeleteFunc(models, func(o Model) bool { return m.dearer(&o) }), m)
}

// dearer reports whether no usage costs less by m than by o.
func (m *Model) dearer(o *Model) bool {
	return m.Price.above(o.Price) && m.weights().above(o.weights())
}
