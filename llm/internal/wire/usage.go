package wire

import "math"

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

// MaxTokens is the largest number of tokens or pieces that a response is believed to have used. A
// larger one is no number.
const MaxTokens = 1_000_000_000
