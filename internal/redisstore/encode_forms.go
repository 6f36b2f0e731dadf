package redisstore

import (
	"encoding/binary"
	"strconv"

	"github.com/headgate/headgate/internal/algorithm"
	"github.com/headgate/headgate/internal/request"
)

// bucketArguments writes KEYS and ARGV of lua/decide/buckets.lua.
func (b *batch) bucketArguments() {
	b.keys = b.keys[:0] // of each entry: one charge of each bundle
	for i := range b.entries {
		e := &b.entries[i]
		for j, c := range e.request.Sent() {
			if e.beginsKey(j) {
				b.keys = append(b.keys, c)
			}
		}
	}
	b.keyNames()
	if len(b.entries) > 1 && b.repeats() {
		b.int(0)
	}
	b.runs(b.bucketRun)
}

// repeats reports whether a bundle may stand twice in KEYS.
func (b *batch) repeats() bool {
	keys := b.keys[:len(b.keys)-b.asked]
	clear(b.places)
	for _, c := range keys {
		b.places[c.KeyHash] = 0
	}
	return len(b.places) < len(keys)
}

// bucketRun writes a run of n as lua/decide/buckets.lua reads it.
func (b *batch) bucketRun(first, n int) {
	e := &b.entries[first]
	little := binary.LittleEndian
	text := little.AppendUint16(b.text[:0], uint16(n))
	text = little.AppendUint16(text, uint16(e.callers))
	for i, c := range e.request.Sent() {
		head := len(text) + len(c.Label)
		text = append(text, c.Bucket...)
		if i > 0 && e.beginsKey(i) {
			text[head] += 64
		}
		text = little.AppendUint64(text, uint64(c.Cost.Whole))
		text = text[:len(text)-1]
	}
	b.text = text
	b.name(string(text))
}

// straightRun writes a run of n as lua/decide/straight.lua reads it.
func (b *batch) straightRun(first, n int) {
	e := &b.entries[first]
	c := e.request.Charges[0]
	op, times := e.asks()
	switch op {
	case algorithm.Decide:
		times = 1
	case algorithm.Peek:
		times = 0
	}
	_, isBucket := c.Limit.(*algorithm.TokenBucket)
	if times == 1 && (isBucket || c.Cost.Whole == 1) {
		b.int(int64(n))
	} else {
		b.int(-int64(n))
		b.int(c.Cost.Whole)
		b.int(times)
	}
	b.numbers = c.Limit.Parameters(b.numbers[:0])
	if isBucket {
		b.bucketText(c, b.numbers)
		return
	}
	for _, p := range b.numbers[1:] {
		b.int(p)
	}
}

// bucketText writes a charge of a bucket, which has these parameters, as the part "straight limit" of
// lua/algorithm/token_bucket.lua reads it.
func (b *batch) bucketText(c *request.Charge, parameters []int64) {
	denominator, capacity, spare := parameters[0], parameters[1], parameters[2]
	queue, reach := parameters[3], parameters[4]
	b.text = append(append(b.text[:0], c.Label...), byte(reach))
	for _, n := range []int64{c.Cost.Whole, c.Cost.Fraction, denominator, capacity, spare} {
		b.text = binary.LittleEndian.AppendUint64(b.text, uint64(n))
	}
	b.name(string(strconv.AppendInt(b.text, queue, 10)))
}
