// Package bloom is Bloom filters in plain Go: their sizes, the bits of an item, and filters in
// memory, which lua/filter.lua is tested against.
package bloom

import (
	"math"
	"math/bits"
	"strconv"

	"github.com/twmb/murmur3"
)

// MaxBytes is the most memory of a filter, all generations together.
const MaxBytes = 512 << 20

// maxPartBits is the most bits of a part. With what Redis keeps beside them they take up to a MiB,
// which it clears, counts and frees in a millisecond.
const maxPartBits = 8*(1<<20-16) - 1

// Shape is the size of a filter. The bits of an item lie in one of the parts.
type Shape struct {
	Bits   int64 // of a part
	Parts  int64
	Hashes int   // bits of an item
	Window int64 // microseconds for which an item is found at least; 0: for ever
}

// NewShape returns a shape with that rate of false positives when that number of items is in it. It
// reports false if the shape takes more than MaxBytes. Both generations of a filter with a window
// hold that number, and share the rate.
func NewShape(items int64, rate float64, window int64) (Shape, bool) {
	if window > 0 {
		rate /= 2
	}
	n := float64(items)
	// Bloom, "Space/time trade-offs in hash coding with allowable errors" (1970). A quarter fewer bits
	// of an item than the optimum take some 3 % more memory, and Redis a quarter less time.
	optimum := -n * math.Log(rate) / (math.Ln2 * math.Ln2)
	all, hashes := math.Inf(1), 0
	for all > 1.04*optimum {
		hashes++
		k := float64(hashes)
		all = -k * n / math.Log1p(-math.Pow(rate, 1/k))
	}
	if all = math.Ceil(all); all > 8*MaxBytes {
		return Shape{}, false
	}
	parts := math.Ceil(all / maxPartBits)
	s := Shape{
		Bits: int64(math.Ceil(all / parts)), Parts: int64(parts), Hashes: hashes, Window: window,
	}
	return s, s.Bytes() <= MaxBytes
}

// Bytes is the size of all parts of all generations.
func (s Shape) Bytes() int64 {
	generations := int64(1)
	if s.Window > 0 {
		generations = 2
	}
	return s.Parts * (s.Bits/8 + 1) * generations // each with the bit behind its last
}

// String is the shape as Redis keeps it.
func (s Shape) String() string {
	text := strconv.AppendInt(make([]byte, 0, 40), s.Bits, 10)
	for _, n := range [...]int64{s.Parts, int64(s.Hashes), s.Window} {
		text = strconv.AppendInt(append(text, ' '), n, 10)
	}
	return string(text)
}

// Item is a question about an item: whether it is in the filter, and perhaps to add it.
type Item struct {
	Part int64 // where its bits lie
	Add  bool

	first, step uint64
}

// Operation is what the script is asked to do with the item.
func (it Item) Operation() string {
	if it.Add {
		return "a"
	}
	return "t"
}

// Item returns the place of an item.
func (s Shape) Item(item string, add bool) Item {
	h, g := murmur3.StringSum128(item)
	part, _ := bits.Mul64(g, uint64(s.Parts))
	return Item{int64(part), add, h % uint64(s.Bits), g % uint64(s.Bits)}
}

// Positions appends the places of an item's bits in its part.
//
// It is the enhanced double hashing of Dillinger and Manolios, "Bloom Filters in Probabilistic
// Verification" (2004), section 5.2.
func (s Shape) Positions(all []int64, it Item) []int64 {
	m, at, step := uint64(s.Bits), it.first, it.step
	for i := range uint64(s.Hashes) {
		all = append(all, int64(at))
		at = (at + step) % m
		step = (step + i + 1) % m
	}
	return all
}

// Items estimates how many different items set that many bits of a part.
//
// Swamidass and Baldi, "Mathematical Correction for Fingerprint Similarity Measures" (2007).
func (s Shape) Items(set int64) float64 {
	m := float64(s.Bits)
	return -m / float64(s.Hashes) * math.Log(1-min(float64(set), m-1)/m)
}

// Rate is the probability that an item that is in no part seems to be in one with that many bits.
func (s Shape) Rate(set int64) float64 {
	return math.Pow(float64(set)/float64(s.Bits), float64(s.Hashes))
}
