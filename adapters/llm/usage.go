package llm

import "github.com/headgate/headgate/adapters/llm/internal/wire"

// Usage is how many tokens one request used. The four numbers do not overlap.
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

// Total returns the sum. It is math.MaxInt64 if the sum overflows. Negative numbers count as 0.
func (u Usage) Total() int64 { return wire.Usage(u).Total() }
