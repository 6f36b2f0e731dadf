// Package bloom implements Bloom filters in plain Go: their sizes, the bits of an item, and filters
// in memory. Tests compare lua/filter/filter.lua with them.
package bloom

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/twmb/murmur3"
)

// MaxBytes is the most memory of a filter, all generations together.
const MaxBytes = 512 << 20

// maxPartBytes bounds the bytes of a part. With the overhead of Redis a part takes up to 1 MiB,
// which Redis clears, counts and frees in a millisecond.
const maxPartBytes = 1<<20 - 16

// Redis copies the block of an item and hashes the copy, 10 instructions a byte, so a small block
// is cheaper. Large blocks are filled more evenly, which a low rate of false positives needs.
const (
	minBlock = 64 // bytes
	maxBlock = 4096
)

// excess is how many times larger a filter with blocks is than one without. A smaller one would
// exceed its rate.
const excess = 1.04

// Shape is the size of a filter. It consists of parts, which consist of blocks. All bits of an item
// lie in one block.
type Shape struct {
	Bits   int64 // of a block: whole bytes
	Blocks int64 // of a part
	Parts  int64
	Hashes int   // bits of an item
	Window int64 // the least microseconds for which an item is found; 0 means for ever
}

// NewShape returns the shape of a filter that holds a number of items at a rate of false positives.
// It reports false if the shape takes more than MaxBytes. Each generation of a filter with a window
// holds that number, and both share the rate.
func NewShape(items int64, rate float64, window int64) (Shape, bool) {
	if window > 0 {
		rate /= 2
	}
	// Bloom, "Space/time trade-offs in hash coding with allowable errors" (1970).
	bytes := excess * -float64(items) * math.Log(rate) / (math.Ln2 * math.Ln2) / 8
	if bytes > MaxBytes {
		return Shape{}, false
	}
	most := int(math.Ceil(-math.Log2(rate))) // bits of an item that take the least memory
	for block := float64(minBlock); ; block *= 2 {
		s := cut(bytes, block)
		s.Window = window
		for s.Hashes = 1; s.Hashes <= most; s.Hashes++ {
			if s.RateOf(float64(items)) <= rate {
				return s, s.Bytes() <= MaxBytes
			}
		}
		if block == maxBlock {
			return s, false
		}
	}
}

// cut returns the shape of a number of bytes in blocks of at most a size.
func cut(bytes, block float64) Shape {
	blocks := math.Ceil(bytes / block)
	size := math.Ceil(bytes / blocks)
	parts := math.Ceil(blocks / math.Floor((maxPartBytes-1)/size))
	return Shape{
		Bits: 8 * int64(size), Blocks: int64(math.Ceil(blocks / parts)), Parts: int64(parts),
	}
}

// PartBits is the number of bits of a part.
func (s Shape) PartBits() int64 { return s.Bits * s.Blocks }

// Bytes is the size of all parts of all generations.
func (s Shape) Bytes() int64 {
	generations := int64(1)
	if s.Window > 0 {
		generations = 2
	}
	return s.Parts * (s.PartBits()/8 + 1) * generations // each with the bit behind its last
}

// String is the shape as Redis keeps it.
func (s Shape) String() string {
	text := strconv.AppendInt(make([]byte, 0, 48), s.Bits, 10)
	for _, n := range [...]int64{s.Blocks, s.Parts, int64(s.Hashes), s.Window} {
		text = strconv.AppendInt(append(text, ' '), n, 10)
	}
	return string(text)
}

// Item is a question about an item: whether the filter contains it. With Add it is added, too.
type Item struct {
	Part, Block int64 // where its bits lie
	Add         bool

	seed uint64
}

// Item returns the place of an item.
func (s Shape) Item(item string, add bool) Item {
	h, seed := murmur3.StringSum128(item)
	block, _ := bits.Mul64(h, uint64(s.Parts*s.Blocks))
	return Item{int64(block) / s.Blocks, int64(block) % s.Blocks, add, seed}
}

// Positions appends the places of an item's bits in its block.
//
// They are drawn by SplitMix64 of Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
// Generators" (2014), two by each number.
func (s Shape) Positions(all []int64, it Item) []int64 {
	state, z := it.seed, uint64(0)
	for i := range s.Hashes {
		if i%2 == 0 {
			state += 0x9e3779b97f4a7c15
			z = state
			z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
			z = (z ^ z>>27) * 0x94d049bb133111eb
			z ^= z >> 31
		}
		all = append(all, int64(z>>32*uint64(s.Bits)>>32))
		z <<= 32
	}
	return all
}

// step is the number of bits of an item that the script looks at together.
const step = 3

// AppendPlaces appends the script's argument for an item: 1 to add it, otherwise 0; the index of
// its part among those asked for, in two bytes; and for each of its bits the number of its byte in
// the block, from 1, in two bytes, and its value there. The last bit is repeated up to a whole
// step.
func (s Shape) AppendPlaces(to []byte, part int, it Item) []byte {
	add := byte(0)
	if it.Add {
		add = 1
	}
	to = append(to, add, byte(part>>8), byte(part))
	var array [36]int64
	positions := s.Positions(array[:0], it)
	for len(positions)%step > 0 {
		positions = append(positions, positions[len(positions)-1])
	}
	for _, at := range positions {
		n := at/8 + 1
		to = append(to, byte(n>>8), byte(n), 1<<(at%8))
	}
	return to
}

// missed returns the probability that an item does not set a given bit of its block.
func (s Shape) missed() float64 { return math.Pow(1-1/float64(s.Bits), float64(s.Hashes)) }

// Items estimates how many different items all parts hold if set bits of one part are set.
//
// Swamidass and Baldi, "Mathematical Correction for Fingerprint Similarity Measures" (2007).
func (s Shape) Items(set int64) float64 {
	m := float64(s.PartBits())
	return math.Log(1-min(float64(set), m-1)/m) / math.Log1p((s.missed()-1)/float64(s.Blocks))
}

// Rate returns the rate of false positives of a part of which set bits are set.
func (s Shape) Rate(set int64) float64 {
	return s.rate(s.Items(set), float64(s.Blocks))
}

// RateOf returns the rate of false positives after a number of items.
func (s Shape) RateOf(items float64) float64 { return s.rate(items, float64(s.Blocks*s.Parts)) }

// rate returns the probability that all bits of a new item are set, with items spread over blocks.
// The number of items in a block has a binomial distribution.
//
// Putze, Sanders and Singler, "Cache-, Hash- and Space-Efficient Bloom Filters" (2007), section 3.
func (s Shape) rate(items, blocks float64) float64 {
	missed, k := s.missed(), float64(s.Hashes)
	if blocks == 1 {
		return math.Pow(1-math.Pow(missed, items), k)
	}
	mean, odds := items/blocks, 1/(blocks-1)
	spread := 10*math.Sqrt(mean) + 10
	least := math.Floor(max(0, mean-spread))
	a, _ := math.Lgamma(items + 1)
	b, _ := math.Lgamma(least + 1)
	c, _ := math.Lgamma(items - least + 1)
	p := math.Exp(a - b - c + least*math.Log(odds) + items*math.Log1p(-1/blocks))
	clear, sum := math.Pow(missed, least), 0.0
	for n := least; n <= min(items, mean+spread); n++ {
		sum += p * math.Pow(1-clear, k)
		p *= (items - n) / (n + 1) * odds
		clear *= missed
	}
	return sum
}
