package llm

import (
	"math"
	"strconv"
)

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
func (u Usage) Total() int64 {
	var sum int64
	for _, n := range [...]int64{u.Input, u.CacheRead, u.CacheWrite, u.Output} {
		n = max(n, 0)
		if n > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += n
	}
	return sum
}

// maxTokens is the largest number of tokens that a response is believed to have used.
const maxTokens = 1_000_000_000_000_000

// tokens reads a number of tokens that a response states. It accepts every spelling of an integer
// and lowers a larger one to maxTokens. A negative or fractional number is none.
func tokens(number []byte) (int64, bool) {
	var n int64
	for i, c := range number {
		if c < '0' || c > '9' {
			return tokensOfFloat(number)
		}
		if i >= 18 {
			return maxTokens, true
		}
		n = n*10 + int64(c-'0')
	}
	return min(n, maxTokens), len(number) > 0
}

// tokensOfFloat reads spellings such as 12.0 and 1e3. Only an exact integer counts.
func tokensOfFloat(number []byte) (int64, bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	if f < 0 || math.Signbit(f) || f != math.Trunc(f) || err != nil && !math.IsInf(f, 1) {
		return 0, false
	}
	return int64(min(f, maxTokens)), true
}

// counts is the numbers of one usage object as the server states them.
type counts struct {
	input, read, write, output  int64
	hasInput, hasRead, hasWrite bool
	hasOutput                   bool
}

// merge overrides the numbers that o has.
func (c *counts) merge(o *counts) {
	if o.hasInput {
		c.input, c.hasInput = o.input, true
	}
	if o.hasRead {
		c.read, c.hasRead = o.read, true
	}
	if o.hasWrite {
		c.write, c.hasWrite = o.write, true
	}
	if o.hasOutput {
		c.output, c.hasOutput = o.output, true
	}
}

// whole reports whether both sides of the usage are stated.
func (c *counts) whole() bool { return c.hasInput && c.hasOutput }

// usage converts to a Usage. OpenAI counts cached tokens in the input too, Anthropic beside it.
func (c *counts) usage(f Format) Usage {
	u := Usage{Input: c.input, CacheRead: c.read, CacheWrite: c.write, Output: c.output}
	if f != AnthropicMessages {
		u.CacheRead = min(u.CacheRead, u.Input)
		u.Input -= u.CacheRead
	}
	return u
}
