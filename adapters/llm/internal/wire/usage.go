package wire

import (
	"math"
	"strconv"
)

// Usage is the tokens that one request used. The numbers do not overlap, except Reasoning.
type Usage struct {
	Input          int64 // tokens of the prompt that no other field counts
	CacheRead      int64 // tokens of the prompt that a prompt cache served
	CacheWrite     int64 // tokens of the prompt that a prompt cache stored
	CacheWriteLong int64 // those that it stored for its second, longer lifetime
	AudioIn        int64 // tokens of sound in the prompt
	ImageIn        int64 // tokens of images in the prompt
	Output         int64 // tokens of text that the model wrote, reasoning included
	AudioOut       int64 // tokens of sound that the model wrote
	ImageOut       int64 // tokens of images that the model drew
	Reasoning      int64 // the part of Output that is reasoning
}

// Total returns the sum without Reasoning, which Output includes, or math.MaxInt64 if it overflows.
// Negative numbers count as 0.
func (u Usage) Total() int64 {
	var sum int64
	for _, n := range [...]int64{
		u.Input, u.CacheRead, u.CacheWrite, u.CacheWriteLong, u.AudioIn, u.ImageIn,
		u.Output, u.AudioOut, u.ImageOut,
	} {
		n = max(n, 0)
		if n > math.MaxInt64-sum {
			return math.MaxInt64
		}
		sum += n
	}
	return sum
}

// ModelUsage is what one model used.
type ModelUsage struct {
	Model string
	Usage Usage
}

// MaxTokens is the largest number of tokens that a response is believed to have used.
const MaxTokens = 1_000_000_000_000_000

// count is one of the numbers of a usage object.
type count uint8

const (
	inputCount count = iota
	readCount
	writeCount
	outputCount
	countKinds
)

// counts is the numbers of one usage object as the server states them.
type counts struct {
	stated [countKinds]bool
	tokens [countKinds]int64
}

func (c *counts) set(k count, tokens int64) { c.stated[k], c.tokens[k] = true, tokens }

// merge overrides the numbers that o states.
func (c *counts) merge(o *counts) {
	for k, stated := range o.stated {
		if stated {
			c.set(count(k), o.tokens[k])
		}
	}
}

// whole reports whether both sides of the usage are stated.
func (c *counts) whole() bool { return c.stated[inputCount] && c.stated[outputCount] }

// usage converts to a Usage. OpenAI includes cached tokens in the input, Anthropic does not.
func (c *counts) usage(f Format) Usage {
	u := Usage{
		Input: c.tokens[inputCount], CacheRead: c.tokens[readCount],
		CacheWrite: c.tokens[writeCount], Output: c.tokens[outputCount],
	}
	if f != AnthropicMessages {
		u.CacheRead = min(u.CacheRead, u.Input)
		u.Input -= u.CacheRead
	}
	return u
}

// tokensOf reads a number of tokens that a response states. It accepts every spelling of an integer
// and lowers a larger one to MaxTokens. It rejects a negative or fractional number.
func tokensOf(number []byte) (int64, bool) {
	var n int64
	for i, c := range number {
		if c < '0' || c > '9' {
			return tokensOfFloat(number)
		}
		if i >= 18 {
			return MaxTokens, true
		}
		n = n*10 + int64(c-'0')
	}
	return min(n, MaxTokens), len(number) > 0
}

// tokensOfFloat reads spellings such as 12.0 and 1e3. Only an exact integer counts.
func tokensOfFloat(number []byte) (int64, bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	if f < 0 || math.Signbit(f) || f != math.Trunc(f) || err != nil && !math.IsInf(f, 1) {
		return 0, false
	}
	return int64(min(f, MaxTokens)), true
}
