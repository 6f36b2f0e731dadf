package llm

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"github.com/headgate/headgate/adapters/llm/internal/wire"
	"github.com/headgate/headgate/core"
)

// Weights are integers for one token of each kind. Input and Output are both set, or neither. A
// CacheRead or CacheWrite of 0 is that of Input.
type Weights struct{ Input, CacheRead, CacheWrite, Output int64 }

// Model tells what the tokens of a model count.
type Model struct {
	// Weights are the units of one token under the budgets of tokens, such as an Output of 4 for
	// output that counts four times. The zero value is 1 for each kind.
	Weights Weights
	// Price is the price of a million tokens in micro-dollars, the millionth part of a dollar, under
	// the budgets of money: 3 dollars are 3,000,000. The cost of a request is rounded up once. It is
	// required for a budget of money, unless Free is set.
	Price Weights
	// Free says that the tokens of the model cost no money.
	Free bool
	// MaxOutput replaces Config.MaxOutput. It is at most 1e9. Zero leaves that.
	MaxOutput int64
}

// dollar is how many tokens a price is for.
const dollar = 1_000_000

func (m *Model) check(at string, money bool, fault func(string, ...any)) {
	for _, w := range []struct {
		name    string
		weights Weights
	}{{"Weights", m.Weights}, {"Price", m.Price}} {
		least := min(w.weights.Input, w.weights.CacheRead, w.weights.CacheWrite, w.weights.Output)
		if least < 0 {
			fault("%s.%s has %d: it must not be negative", at, w.name, least)
		}
		if (w.weights.Input == 0) != (w.weights.Output == 0) ||
			w.weights.Input == 0 && w.weights.CacheRead+w.weights.CacheWrite > 0 {
			fault("%s.%s is %+v: set both Input and Output, or nothing", at, w.name, w.weights)
		}
	}
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

// of returns the weighted sum of a usage. It does not overflow.
func (w Weights) of(u Usage) *big.Int {
	w = w.complete()
	sum := new(big.Int)
	for _, n := range [...][2]int64{
		{w.Input, u.Input}, {w.CacheRead, u.CacheRead}, {w.CacheWrite, u.CacheWrite}, {w.Output, u.Output},
	} {
		product := big.NewInt(max(0, n[1]))
		sum.Add(sum, product.Mul(product, big.NewInt(n[0])))
	}
	return sum
}

// cost returns the units of a usage.
func (m *Model) cost(unit core.Unit, u Usage) int64 {
	switch unit {
	case core.UnitInputTokens:
		u.Output = 0
	case core.UnitOutputTokens:
		u = Usage{Output: u.Output}
	case core.UnitMicroDollars:
		sum := m.Price.of(u)
		sum.Add(sum, big.NewInt(dollar-1))
		return whole(sum.Div(sum, big.NewInt(dollar)))
	}
	return whole(m.weights().of(u))
}

func whole(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}

// complete returns the weights with those of the caches.
func (w Weights) complete() Weights {
	w.CacheRead, w.CacheWrite = cmp.Or(w.CacheRead, w.Input), cmp.Or(w.CacheWrite, w.Input)
	return w
}

// dearer reports whether no usage costs less by m than by o.
func (m *Model) dearer(o *Model) bool {
	above := func(a, b Weights) bool {
		a, b = a.complete(), b.complete()
		return a.Input >= b.Input && a.CacheRead >= b.CacheRead && a.CacheWrite >= b.CacheWrite &&
			a.Output >= b.Output
	}
	return above(m.Price, o.Price) && above(m.weights(), o.weights())
}

// keepDearest adds a model to those of which one may be the dearest.
func keepDearest(models []Model, m Model) []Model {
	if slices.ContainsFunc(models, func(o Model) bool { return o.dearer(&m) }) {
		return models
	}
	return append(slices.DeleteFunc(models, func(o Model) bool { return m.dearer(&o) }), m)
}

// weights returns the units of one token of each kind.
func (m *Model) weights() Weights {
	if m.Weights == (Weights{}) {
		return Weights{1, 1, 1, 1}
	}
	return m.Weights
}

// cost returns the units of a usage by some model of those that a request may be for.
func cost(models []Model, unit core.Unit, u Usage) (most int64) {
	for i := range models {
		most = max(most, models[i].cost(unit, u))
	}
	return most
}
