package bloom

import "math/bits"

// The replies about an item.
const (
	Absent  = 0
	Present = 1 // or a false positive
	Lost    = 2 // Redis has lost the part; nothing was added
	Again   = 3 // the script has made its share of parts; nothing was added, so ask again
	Begin   = 4 // Redis has no record of the filter; nothing was added
)

// Filter is a filter in memory. The zero value is empty.
type Filter struct {
	shape      Shape              // of the items; zero if there are none
	generation int64              // of the newest part
	parts      map[[2]int64]*part // by its number, and 1 for an odd generation
}

type part struct {
	generation int64
	words      []uint64
}

// current returns the generation of a time. If the clock steps back into the previous generation,
// the newest one continues.
func (f *Filter) current(s Shape, now int64) int64 {
	if s.Window == 0 {
		return 0
	}
	g := now / s.Window
	if f.shape == s && f.generation == g+1 {
		return g + 1
	}
	return g
}

// Fits reports whether the filter is empty or has the shape s. Otherwise it returns its own shape.
func (f *Filter) Fits(s Shape) (other Shape, ok bool) {
	return f.shape, f.shape == s || f.shape == Shape{}
}

// Ask answers for each item, in order, whether it was in the filter, and adds the items with Add.
func (f *Filter) Ask(now int64, s Shape, items []Item) []int64 {
	g := f.current(s, now)
	replies := make([]int64, len(items))
	var positions []int64
	for i, it := range items {
		positions = s.Positions(positions[:0], it)
		for j := range positions {
			positions[j] += it.Block * s.Bits
		}
		found := f.get(it.Part, g).has(positions) || s.Window > 0 && f.get(it.Part, g-1).has(positions)
		if found {
			replies[i] = Present
		}
		if it.Add {
			f.make(s, it.Part, g).add(positions)
		}
	}
	return replies
}

// get returns a part of a generation, or nil.
func (f *Filter) get(n, generation int64) *part {
	if p := f.parts[[2]int64{n, generation & 1}]; p != nil && p.generation == generation {
		return p
	}
	return nil
}

// make returns a part of a generation, and creates a missing one.
func (f *Filter) make(s Shape, n, generation int64) *part {
	if p := f.get(n, generation); p != nil {
		return p
	}
	f.shape, f.generation = s, generation
	if f.parts == nil {
		f.parts = make(map[[2]int64]*part)
	}
	p := &part{generation, make([]uint64, (s.PartBits()+63)/64)}
	f.parts[[2]int64{n, generation & 1}] = p
	return p
}

func (p *part) has(positions []int64) bool {
	if p == nil {
		return false
	}
	for _, at := range positions {
		if p.words[at/64]&(1<<(at%64)) == 0 {
			return false
		}
	}
	return true
}

func (p *part) add(positions []int64) {
	for _, at := range positions {
		p.words[at/64] |= 1 << (at % 64)
	}
}

// Count returns the number of set bits of a part, in the current and the previous generation.
func (f *Filter) Count(now int64, s Shape, n int64) (current, before int64) {
	g := f.current(s, now)
	current = f.get(n, g).count()
	if s.Window > 0 {
		before = f.get(n, g-1).count()
	}
	return current, before
}

func (p *part) count() (n int64) {
	if p == nil {
		return 0
	}
	for _, w := range p.words {
		n += int64(bits.OnesCount64(w))
	}
	return n
}
