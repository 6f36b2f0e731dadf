package llm

import "github.com/headgate/headgate/llm/internal/wire"

// Model is what requests to a model cost and use.
type Model struct {
	// Tariff is what a request costs under the budgets of money, which require it.
	Tariff Tariff
	// MaxOutput is the most tokens of output that the model writes in one answer, at most 1e9. The
	// estimate has no more, and as many for a request that states no cap. Zero means no such bound, and
	// Config.MaxOutput for a request without a cap.
	MaxOutput int64
}

func (m *Model) check(at string, money bool, fault func(string, ...any)) {
	m.Tariff.check(at+".Tariff", fault)
	if money && m.Tariff.isZero() {
		fault("%s has no Tariff, and a budget counts money: set its Price, or Free prices", at)
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
	// UnknownModelDearest admits it. Each kind of token and unit costs the highest price that any model
	// has for it, for prompts of any length and with any label.
	UnknownModelDearest
)

// StatedCost decides about a bill that the server states, as OpenRouter, xAI and Perplexity do.
type StatedCost uint8

const (
	// StatedCostIgnore charges the Tariff.
	StatedCostIgnore StatedCost = iota
	// StatedCostTrust charges what the server states, rounded up, in place of the Tariff.
	StatedCostTrust
)
