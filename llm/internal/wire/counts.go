package wire

import (
	"math"
	"strconv"
)

// count is one of the numbers that a usage states.
type count uint8

const (
	inputCount       count = iota
	besideInputCount       // input that inputCount does not include
	outputCount
	elseInputCount // numbers that count if the others are never stated
	elseReadCount  // not included in elseInputCount
	elseOutputCount
	totalCount
	readCount
	writeCount
	createCount // the same under Anthropic's name, which servers count inside or beside the input
	shortCount  // the parts of these, by the lifetime of the cache
	longCount
	audioInCount
	imageInCount
	audioReadCount // the parts of these that a cache served
	imageReadCount
	audioOutCount
	imageOutCount
	textOutCount
	reasoningCount
	besideReasoningCount // reasoning that outputCount does not include
	flatReasoningCount   // reasoning that it does not include if there was research, which only Perplexity states
	researchCount
	countKinds
)

// counts is the numbers of a usage as the server states them.
type counts struct {
	stated uint32 // a bit for each number
	tokens [countKinds]int64
}

// set notes a number. A zero erases nothing: a server repeats or leaves out what it has stated
// before, and some state 0 for that.
func (c *counts) set(k count, tokens int64) {
	c.stated |= 1 << k
	if tokens != 0 {
		c.tokens[k] = tokens
	}
}

func (c *counts) states(k count) bool { return c.stated&(1<<k) != 0 }

// merge overrides the numbers that o states, except by zeros: a server repeats or leaves out what
// it has stated before, and some state 0 for that.
func (c *counts) merge(o *counts) {
	c.stated |= o.stated
	for k, n := range o.tokens {
		if n != 0 {
			c.tokens[k] = n
		}
	}
}

// complete fills in what the response has not stated, when it has ended.
func (c *counts) complete() {
	if !c.states(inputCount) && c.states(elseInputCount) {
		c.set(inputCount, c.tokens[elseInputCount]+c.tokens[elseReadCount])
		c.set(readCount, c.tokens[elseReadCount])
	}
	if !c.states(outputCount) && c.states(elseOutputCount) {
		c.set(outputCount, c.tokens[elseOutputCount])
	}
}

// whole reports whether both sides of the usage are stated.
func (c *counts) whole() bool {
	return c.states(inputCount) && (c.states(outputCount) || c.states(totalCount))
}

// usage returns the numbers without overlap. beside says that cached tokens are not part of the
// input. imageOut says that output without details is images.
func (c *counts) usage(beside, imageOut bool) Usage {
	n := &c.tokens
	in, out, total := c.sums()
	reasoning, apart := c.reasoning(out)
	read, write := n[readCount], max(n[writeCount], n[createCount], n[shortCount]+n[longCount])
	cached, extra := read+write, total-in-out-n[besideInputCount]
	beside = beside || read+n[createCount] > in // parts are not more than all of it
	switch {
	case apart:
		out += reasoning
	case total > 0 && cached > 0 && extra == cached: // also a proxy of another family of servers
		beside = true
	case total > 0 && beside && extra == 0 && cached <= in:
		beside = false
	case !beside && (extra > 0 || total == 0 && reasoning > out):
		out += max(reasoning, extra)
	}
	if !beside {
		read = min(read, in)
		write = min(write, in-read)
		in -= read + write
	}
	u := Usage{CacheRead: read, CacheWriteLong: min(n[longCount], write)}
	u.CacheWrite = write - u.CacheWriteLong
	c.split(&u, in+n[besideInputCount], out, imageOut)
	u.Reasoning = min(reasoning, u.Output)
	return u
}

// reasoning returns the tokens of reasoning, and whether they are no part of the output.
func (c *counts) reasoning(out int64) (tokens int64, apart bool) {
	n := &c.tokens
	flat := n[flatReasoningCount]
	switch {
	case n[besideReasoningCount] > 0:
		return n[besideReasoningCount], true
	case flat > out || flat > 0 && n[researchCount] > 0:
		return flat, true
	}
	return max(n[reasoningCount], flat), false
}

// sums returns the input, the output and their total as the server states them, each from the other
// two if it does not.
func (c *counts) sums() (in, out, total int64) {
	n := &c.tokens
	in, out, total = n[inputCount], n[outputCount], n[totalCount]
	if !c.states(inputCount) {
		in = max(0, total-out)
	}
	if sound := n[audioInCount]; sound > in && total == in+sound+out { // which is no part of it
		in += sound
	}
	if !c.states(outputCount) && n[besideReasoningCount] == 0 {
		out = max(0, total-in)
	}
	return in, out, total
}

// split splits input and output by modality.
func (c *counts) split(u *Usage, in, out int64, imageOut bool) {
	n := &c.tokens
	u.AudioIn = min(max(0, n[audioInCount]-n[audioReadCount]), in)
	u.ImageIn = min(max(0, n[imageInCount]-n[imageReadCount]), in-u.AudioIn)
	u.Input = in - u.AudioIn - u.ImageIn
	u.AudioOut = min(n[audioOutCount], out)
	u.ImageOut = min(n[imageOutCount], out-u.AudioOut)
	if imageOut && !c.states(imageOutCount) && !c.states(textOutCount) {
		u.ImageOut = out - u.AudioOut
	}
	u.Output = out - u.AudioOut - u.ImageOut
}

// prompt returns the tokens of the prompt.
func (u Usage) prompt() int64 {
	return u.Input + u.CacheRead + u.CacheWrite + u.CacheWriteLong + u.AudioIn + u.ImageIn
}

// plus returns the sum of two usages.
func (u Usage) plus(o Usage) Usage {
	return Usage{
		Input: u.Input + o.Input, CacheRead: u.CacheRead + o.CacheRead,
		CacheWrite: u.CacheWrite + o.CacheWrite, CacheWriteLong: u.CacheWriteLong + o.CacheWriteLong,
		AudioIn: u.AudioIn + o.AudioIn, ImageIn: u.ImageIn + o.ImageIn,
		Output: u.Output + o.Output, AudioOut: u.AudioOut + o.AudioOut,
		ImageOut: u.ImageOut + o.ImageOut, Reasoning: u.Reasoning + o.Reasoning,
	}
}

// tokensOf reads a number of tokens that a response states. It accepts every spelling of an integer
// between 0 and MaxTokens, such as 12.0 and 1e3.
func tokensOf(number []byte) (int64, bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	return int64(f), err == nil && !math.Signbit(f) && f == math.Trunc(f) && f <= MaxTokens
}
