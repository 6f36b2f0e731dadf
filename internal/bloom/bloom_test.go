package bloom_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/bloom"
)

func shape(t testing.TB, items int64, rate float64, window int64) bloom.Shape {
	t.Helper()
	s, ok := bloom.NewShape(items, rate, window)
	if !ok {
		t.Fatalf("%d items at %v are too many", items, rate)
	}
	return s
}

func TestShape(t *testing.T) {
	for _, tt := range []struct {
		items  int64
		rate   float64
		window int64
		want   string
		bytes  int64
	}{
		{1, 0.5, 0, "8 1 1 1 0", 2},
		{1, 1e-9, 0, "48 1 1 18 0", 7},
		{1000, 0.01, 0, "504 20 1 6 0", 1261}, // in theory 1199
		{1000, 0.02, 1_000_000, "504 20 1 6 1000000", 2522},
		{1_000_000, 0.01, 0, "512 9735 2 6 0", 1_246_082},
		{430_000_000, 0.01, 0, "512 16352 512 6 0", 535_822_848},
	} {
		s := shape(t, tt.items, tt.rate, tt.window)
		if s.String() != tt.want || s.Bytes() != tt.bytes {
			t.Errorf("%d items at %v: %v, %d bytes", tt.items, tt.rate, s, s.Bytes())
		}
	}
	for _, tt := range []struct {
		items  int64
		rate   float64
		window int64
	}{{431_000_000, 0.01, 0}, {1 << 62, 0.5, 0}, {216_000_000, 0.02, 1_000_000}} {
		if s, ok := bloom.NewShape(tt.items, tt.rate, tt.window); ok {
			t.Errorf("%d items at %v have the shape %v", tt.items, tt.rate, s)
		}
	}
}

// Processes of all versions must agree where an item is.
func TestPositionsAreStable(t *testing.T) {
	small, large := bloom.Shape{Bits: 504, Blocks: 20, Parts: 1, Hashes: 7}, bloom.Shape{Bits: 16384, Blocks: 500, Parts: 171, Hashes: 10}
	for _, tt := range []struct {
		shape bloom.Shape
		item  string
		want  string
	}{
		{small, "a", "0 10 [58 488 166 378 443 301 146]"},
		{small, "https://example.com/", "0 14 [30 69 211 313 134 464 418]"},
		{large, "a", "89 31 [1910 15894 5417 12312 14420 9814 4753 8487 2689 9308]"},
		{large, "\x00\xff", "148 20 [2867 15151 12180 5362 3534 215 3900 10780 29 14757]"},
	} {
		it := tt.shape.Item(tt.item, false)
		if got := fmt.Sprint(it.Part, it.Block, tt.shape.Positions(nil, it)); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.item, got, tt.want)
		}
	}
}

func TestPositionsLieInTheShape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := bloom.NewShape(
			rapid.Int64Range(1, 90_000_000).Draw(t, "items"), rapid.SampledFrom([]float64{1e-9, 1e-4, 0.01, 0.5}).Draw(t, "rate"), 0)
		it := s.Item(rapid.String().Draw(t, "item"), true)
		if it.Part < 0 || it.Part >= s.Parts || it.Block < 0 || it.Block >= s.Blocks {
			t.Fatalf("block %d of %d in part %d of %d", it.Block, s.Blocks, it.Part, s.Parts)
		}
		all := s.Positions(nil, it)
		if len(all) != s.Hashes || slices.Min(all) < 0 || slices.Max(all) >= s.Bits {
			t.Fatalf("%v: positions %v", s, all)
		}
	})
}

func ask(s bloom.Shape, add bool, items ...string) (all []bloom.Item) {
	for _, item := range items {
		all = append(all, s.Item(item, add))
	}
	return all
}

func TestFilterKeepsItsRate(t *testing.T) {
	for _, tt := range []struct {
		items int64
		rate  float64
	}{{100, 0.1}, {20_000, 0.01}, {50_000, 0.001}, {300_000, 0.25}} {
		s := shape(t, tt.items, tt.rate, 0)
		var f bloom.Filter
		for i := range tt.items {
			f.Ask(1, s, ask(s, true, fmt.Sprint("in ", i)))
		}
		for i := range tt.items {
			if f.Ask(1, s, ask(s, false, fmt.Sprint("in ", i)))[0] != bloom.Present {
				t.Fatalf("%d of %d is missing", i, tt.items)
			}
		}
		const others = 200_000
		found := int64(0)
		for i := range others {
			found += f.Ask(1, s, ask(s, false, fmt.Sprint("out ", i)))[0]
		}
		rate := float64(found) / others
		if rate > tt.rate*1.15 || rate < tt.rate*0.8 {
			t.Errorf("%d items at %v: %v", tt.items, tt.rate, rate)
		}
		var items, estimate float64
		for part := range s.Parts {
			set, _ := f.Count(1, s, part)
			items += s.Items(set)
			estimate += s.Rate(set) / float64(s.Parts)
		}
		if n := float64(tt.items); items < n*0.9 || items > n*1.1 {
			t.Errorf("%v items are estimated to be %v", n, items)
		}
		if estimate > tt.rate*1.15 || estimate < tt.rate*0.8 {
			t.Errorf("rate %v is estimated as %v", tt.rate, estimate)
		}
	}
}

func TestItemsAgeOut(t *testing.T) {
	const window = 1000
	s := shape(t, 100, 0.001, window)
	rapid.Check(t, func(t *rapid.T) {
		var f bloom.Filter
		now := rapid.Int64Range(1_000_000, 1_000_000+2*window).Draw(t, "start")
		added := make(map[string]int64)
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.Int64Range(0, window).Draw(t, "later")
			item := fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "item"))
			add := rapid.Bool().Draw(t, "add")
			found := f.Ask(now, s, ask(s, add, item))[0] == bloom.Present
			last, was := added[item]
			switch {
			case was && now-last <= window && !found:
				t.Fatalf("step %d: %s is gone after %d", i, item, now-last)
			case (!was || now-last >= 2*window) && found:
				t.Fatalf("step %d: %s is found after %d", i, item, now-last)
			}
			if add {
				added[item] = now
			}
		}
	})
}
