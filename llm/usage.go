package llm

import (
	"github.com/headgate/headgate/core"
	"github.com/headgate/headgate/llm/internal/wire"
)

// Usage is the tokens that one request used. The numbers do not overlap, except Reasoning.
type Usage struct {
	// Input is the tokens of the prompt that no other field counts.
	Input int64
	// CacheRead is the tokens of the prompt that a prompt cache served.
	CacheRead int64
	// CacheWrite is the tokens of the prompt that a prompt cache stored.
	CacheWrite int64
	// CacheWriteLong is the tokens that it stored for its second, longer lifetime, such as an hour.
	CacheWriteLong int64
	// AudioIn is the tokens of sound in the prompt that no cache served or stored.
	AudioIn int64
	// ImageIn is the tokens of images in the prompt that no cache served or stored.
	ImageIn int64
	// Output is the tokens of text that the model wrote, reasoning included.
	Output int64
	// AudioOut is the tokens of sound that the model wrote.
	AudioOut int64
	// ImageOut is the tokens of images that the model drew.
	ImageOut int64
	// Reasoning is the part of Output that is reasoning, as far as the response tells it.
	Reasoning int64
}

// Total returns the sum of all fields except Reasoning, which Output includes. It returns
// math.MaxInt64 if the sum overflows. Negative numbers count as 0.
func (u Usage) Total() int64 { return wire.Usage(u).Total() }

// prompt returns the part that is the prompt.
func (u Usage) prompt() Usage {
	u.Output, u.AudioOut, u.ImageOut, u.Reasoning = 0, 0, 0, 0
	return u
}

// of returns the tokens that a budget with a unit of tokens counts.
func (u Usage) of(unit core.Unit) int64 {
	switch unit {
	case core.UnitInputTokens:
		u = u.prompt()
	case core.UnitOutputTokens:
		u = Usage{Output: u.Output, AudioOut: u.AudioOut, ImageOut: u.ImageOut}
	}
	return u.Total()
}

// positive returns the usage with 0 in place of negative numbers, and Reasoning within Output.
func (u Usage) positive() Usage {
	for _, n := range u.fields() {
		*n = max(0, *n)
	}
	u.Reasoning = min(u.Reasoning, u.Output)
	return u
}

// fields returns the numbers, to be changed, in the order of those of a Price.
func (u *Usage) fields() [10]*int64 {
	return [...]*int64{
		&u.Input, &u.CacheRead, &u.CacheWrite, &u.CacheWriteLong, &u.AudioIn, &u.ImageIn,
		&u.Output, &u.AudioOut, &u.ImageOut, &u.Reasoning,
	}
}
