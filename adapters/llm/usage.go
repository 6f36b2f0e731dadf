package llm

import "github.com/headgate/headgate/adapters/llm/internal/wire"

// Usage is the tokens that one request used. The four numbers do not overlap.
type Usage struct {
	// Input is the tokens of the prompt that no cache served or stored.
	Input int64
	// CacheRead is the tokens of the prompt that a prompt cache served.
	CacheRead int64
	// CacheWrite is the tokens of the prompt that a prompt cache stored.
	CacheWrite int64
	// Output is the tokens that the model wrote, reasoning included.
	Output int64
}

// Total returns the sum, or math.MaxInt64 if it overflows. Negative numbers count as 0.
func (u Usage) Total() int64 { return wire.Usage(u).Total() }

// prompt returns the tokens of the prompt.
func (u Usage) prompt() int64 {
	u.Output = 0
	return u.Total()
}

// positive returns the usage with 0 in place of negative numbers.
func (u Usage) positive() Usage {
	return Usage{max(0, u.Input), max(0, u.CacheRead), max(0, u.CacheWrite), max(0, u.Output)}
}
